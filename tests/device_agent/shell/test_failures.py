"""What a device with an allowance writes down before a task begins, and what it says of one that failed."""

import json
from contextlib import nullcontext
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from idle_agents import idle_agent
from test_agent_waits import PRIVATE, at_hand, sent, tell

from device_agent.decide import vocabulary
from device_agent.durable.failures import MOST, NAME, Failures
from device_agent.durable.privacy_ledger import PrivacyLedger
from device_agent.shell.allowance import KNOWN, UNDONE
from device_agent.shell.service import Agent
from device_agent.shell.setup import Hooks, Limits
from device_agent.shell.training import WorkDone, WorkFailed, WorkProgressed
from device_agent.shell.workers import check_enough
from edgefl.base.errors import RemoteError, StoreError
from edgefl.base.vector import Layout
from edgefl.job.config.allowance import Allowance
from edgefl.job.run.work import WorkResult
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.privacy import Output, Price
from edgefl.wire.messages import Assignment, DeclinedMessage, Shape, WireVitals
from edgefl.wire.transport import ConnectionMade
from tools.failing_disk import FailingDisk, PowerCut

WHY = "sample 17 is 4.25"


def private_agent(disk: FailingDisk, **more: object) -> Agent:
    agent = idle_agent(disk, limits=Limits(allowance=Allowance(epsilon=1e6, delta=0.9)), **more)
    agent.handle(ConnectionMade())
    return agent


def task(round: int) -> Assignment:
    return Assignment(job="job", run_id="life", round=round, attempt=1, model=f"m{round}", seconds=30.0)


def begin(agent: Agent, round: int) -> None:
    at_hand(agent, PRIVATE)
    agent.model_cache.items[f"m{round}"] = agent.model_cache.items["m3"]
    tell(agent, task(round))


def fail(agent: Agent, round: int) -> list[object]:
    """What is said of a task that failed."""
    sent(agent)
    agent.handle(WorkFailed(agent.trainer.number, round, WHY, WHY, mistake=False))
    return sent(agent)


# ---- what is said ----------------------------------------------------------------------------------------------------


def test_a_failure_is_told_in_one_text_and_ten_of_them_end_the_service(caplog: pytest.LogCaptureFixture) -> None:
    disk = FailingDisk()
    agent = private_agent(disk)
    for round in range(1, MOST + 1):
        begin(agent, round)
        assert fail(agent, round) == [DeclinedMessage(job="job", round=round, reason=UNDONE)]
    assert f"delete {disk.where(NAME)}" in caplog.text, "its owner is told what to do"
    agent = private_agent(disk)
    events = agent.ledger.events("job.life")
    begin(agent, MOST + 1)
    (message,) = sent(agent)
    assert isinstance(message, DeclinedMessage)
    assert message.reason.startswith("privacy.closed: this device no longer works for this coordinator")
    assert agent.ledger.events("job.life") == events, "nothing was begun"
    disk.remove(NAME)
    agent = private_agent(disk)
    begin(agent, MOST + 2)
    assert sent(agent) == []
    assert agent.ledger.events("job.life") == events + 1


def test_a_failure_is_on_disk_before_it_is_told() -> None:
    disk = FailingDisk()
    agent = private_agent(disk)
    begin(agent, 1)
    disk.capacity = disk.used
    disk.write = _full  # type: ignore[method-assign]
    assert fail(agent, 1) == []


def _full(name: str, _data: object) -> None:
    raise StoreError(f"{name} cannot be written: the disk is full")


def test_newer_data_that_do_not_fit_count_as_a_failure_though_the_task_is_done() -> None:
    agent = private_agent(FailingDisk())
    for round, misfits in ((1, 0), (2, 1), (3, 0)):
        begin(agent, round)
        agent.samples.misfits += misfits
        agent.handle(WorkDone(agent.trainer.number, round, WorkResult(b"an update of round %d" % round, {}, 0.1, 9)))
        assert agent.failures.of(agent.model_cache.trust.key or "") == (0 if round == 1 else 1), "once"


def test_without_an_allowance_the_reason_is_told() -> None:
    agent = idle_agent(FailingDisk())
    agent.handle(ConnectionMade())
    begin(agent, 1)
    assert fail(agent, 1) == [DeclinedMessage(job="job", round=1, reason=WHY)]
    assert agent.failures.of(agent.model_cache.trust.key or "") == 0


def test_how_the_work_goes_and_how_the_machine_fares_is_told_by_devices_without_an_allowance_alone() -> None:
    said = {}
    for allowance in (None, Allowance(epsilon=8.0)):
        agent = idle_agent(
            FailingDisk(), limits=Limits(allowance=allowance), hooks=Hooks(machine=lambda: WireVitals(temperature=71.5))
        )
        agent.handle(ConnectionMade())
        begin(agent, 1)
        sent(agent)
        agent.handle(WorkProgressed(agent.trainer.number, 1, 7))
        agent.clock.time += 100
        agent.handle(WorkDone(agent.trainer.number, 1, WorkResult(b"an update", {}, 0.1, 9)))
        presence = agent.attendance.outbox.announced
        said[allowance is None] = (
            [type(one).__name__ for one in sent(agent) if not isinstance(one, int)],
            b"71.5" in presence,
        )
    assert said == {True: (["Working", "Working"], True), False: ([], False)}


@pytest.mark.parametrize("purpose", ["train", "evaluate", "describe"])
def test_the_order_of_a_device_with_an_allowance_has_no_time(purpose: str) -> None:
    orders = []
    agent = private_agent(FailingDisk())
    agent.trainer.start = lambda order, *_: orders.append(order)
    at_hand(agent, PRIVATE)
    agent.model_cache.items["m1"] = agent.model_cache.items["m3"]
    tell(agent, task(1).model_copy(update={"purpose": purpose}))
    assert [(order.hidden, order.task.seconds) for order in orders] == [(True, None)] * (purpose == "train")


def test_samples_that_became_fewer_are_no_failure_and_matter_where_they_are_the_price() -> None:
    disk = FailingDisk()
    agent = private_agent(disk)
    begin(agent, 1)
    sent(agent)
    agent.handle(WorkFailed(agent.trainer.number, 1, KNOWN, KNOWN, mistake=False))
    assert sent(agent) == [DeclinedMessage(job="job", round=1, reason=KNOWN)]
    assert json.loads(disk.read(NAME) or b"") == {"failures": {}, "begun": None}
    layer = Layout(("w", "b"), ((2, 3), (2,)))
    for mechanism, fewest in (({"mechanism": "output"}, 0), ({"mechanism": "objective"}, 40)):
        x = np.zeros((40, 3), np.float32)
        agent = private_agent(FailingDisk(), data=Dataset(x, np.zeros(40, np.int64), 2))
        at_hand(agent, {"name": "fedprox", "mu": 0.1, "privacy": mechanism})
        item = agent.model_cache.items["m3"]
        item = replace(item, manifest=item.manifest.model_copy(update={"layout": Shape.of(layer)}))
        orders = []
        agent.trainer.start = lambda order, *_, orders=orders: orders.append(order)
        agent.model_cache.items["m1"] = item
        tell(agent, task(1))
        assert [order.fewest for order in orders] == [fewest]
        with pytest.raises(RemoteError) if fewest else nullcontext():
            check_enough(39, orders[0])


# ---- what is written down --------------------------------------------------------------------------------------------


def test_a_task_that_ends_its_agent_counts_unless_the_machine_has_booted_since() -> None:
    for boot, counted in (("one", 1), ("two", 0)):
        disk = FailingDisk()
        Failures(disk, "one").begin("key")
        assert Failures(disk, boot).of("key") == counted
        assert Failures(disk, boot).of("key") == counted, "once"


def test_an_agent_that_is_stopped_in_the_middle_of_a_task_has_not_failed() -> None:
    disk = FailingDisk()
    agent = private_agent(disk)
    begin(agent, 1)
    agent.handle(vocabulary.Stopped())
    assert json.loads(disk.read(NAME) or b"") == {"failures": {}, "begun": None}


def test_each_coordinator_has_failures_of_its_own() -> None:
    failures = Failures(FailingDisk())
    for _ in range(MOST):
        failures.end(failed_for="one")
    failures.check("two")
    with pytest.raises(RemoteError, match="no longer works for this coordinator"):
        failures.check("one")


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"failures": {"a": "x"}}', b'{"failures": {}, "begun": ["a"]}'])
def test_a_damaged_count_is_never_begun_anew_unasked(damage: bytes) -> None:
    disk = FailingDisk()
    disk.write(NAME, damage)
    with pytest.raises(StoreError, match="damaged, so it is not known how often tasks failed"):
        Failures(disk)


PRICE = Price(Output(clip=1.0, sigma=1.0), 40, 0.1, Layout(("w",), ((2, 2),)))
KEYS, RUNS = st.sampled_from(["one", "two"]), st.sampled_from(["job.a", "job.b"])


class Killed(RuleBasedStateMachine):
    """Power may be cut at any step of any write: what was known to be written is there, and nothing is taken back."""

    @initialize()
    def start(self) -> None:
        self.disk = FailingDisk()
        self.booked: dict[str, int] = {}  # at least
        self.failed: dict[str, int] = {}
        self.boot()

    def boot(self) -> None:
        self.ledger, self.failures = PrivacyLedger(self.disk), Failures(self.disk, "boot")

    @rule(run=RUNS, key=KEYS, power=st.none() | st.integers(0, 12), seed=st.integers(0, 99), fails=st.booleans())
    def work(self, run: str, key: str, power: int | None, seed: int, fails: bool) -> None:
        self.disk.power = power
        try:
            self.failures.begin(key)
            self.ledger.spend(run, PRICE)
            self.booked[run] = self.booked.get(run, 0) + 1  # from here on its graph may run
            self.failed[key] = self.failed.get(key, 0) + fails  # its end is told, or its agent is gone: both are seen
            self.failures.end(failed_for=key if fails else None)
        except PowerCut:
            self.disk.crash(Random(seed))
            self.disk.power = None
            self.boot()
        self.disk.power = None

    @invariant()
    def nothing_is_forgotten(self) -> None:
        assert all(self.ledger.events(run) >= count for run, count in self.booked.items())
        assert all(self.failures.of(key) >= count for key, count in self.failed.items())

    @rule(run=RUNS, key=KEYS)
    def die_over_it(self, run: str, key: str) -> None:
        self.failures.begin(key)
        self.ledger.spend(run, PRICE)
        self.booked[run] = self.booked.get(run, 0) + 1
        self.failed[key] = self.failed.get(key, 0) + 1
        self.boot()

    @rule()
    def restart(self) -> None:
        before = {run: dict(entry) for run, entry in self.ledger.runs.items()}
        self.boot()
        assert self.ledger.runs == before


TestKilled = Killed.TestCase
