"""Numbers that only one device says about itself: none of them ends the coordinator, or draws others into its work."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from facts import in_json
from fleets import prepared, run_file
from puppet import Puppet, answer, noise

from coordinator.shell.budgets import MOST, budget
from coordinator.shell.threaded import Threaded
from edgefl.base import seeds
from edgefl.base.errors import WireError
from edgefl.base.vector import Array
from edgefl.job.config.schema import RunFile
from edgefl.wire import topics
from edgefl.wire.messages import Assignment, Presence, read_json
from tools.in_memory_broker import InMemoryBroker

BAD = "device-00"
Act = Callable[[Puppet, Assignment], None]


def size_of(run: RunFile) -> int:
    return prepared(run)[0].model.layout.size


def played(run: RunFile, act: Act, honest: int = 1, then: Act | None = None) -> tuple[dict[str, Any], dict[str, int]]:
    """How a run with this device and honest ones ends, and how often each was asked."""
    broker, events, size = InMemoryBroker(), list[dict[str, Any]](), size_of(run)

    def send(puppet: Puppet, task: Assignment) -> None:
        puppet.say(answer(puppet, task, {"delta": noise(size, task.round)}))

    coordinator = Threaded(run, broker.client("coordinator"), lambda: prepared(run)[0], tell=in_json(events.append))
    ends: list[BaseException] = []

    def serve() -> None:
        try:
            coordinator.run()
        except Exception as error:  # noqa: BLE001 - told below
            ends.append(error)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    puppets = {
        name: Puppet(name, broker.client(name), act if name == BAD else then or send, job="fleet")
        for name in (BAD, *(f"device-{i:02}" for i in range(1, honest + 1)))
    }
    for puppet in puppets.values():
        puppet.start()
    thread.join(60)
    assert not thread.is_alive(), events[-3:]
    assert ends == []
    return events[-1], {name: puppet.asked for name, puppet in puppets.items()}


RUN = run_file({"name": "fedavg"}, run={"rounds": 3}, rounds={"cohort": 2, "quorum": 1, "start_with": 2})


def claim(delta: Array, **claims: float) -> Act:
    """Answers with these numbers, and declines what was not taken: nobody shall wait for a deadline."""

    def act(puppet: Puppet, task: Assignment) -> None:
        puppet.say(answer(puppet, task, {"delta": delta}, **claims))
        puppet.decline(task)

    return act


@pytest.mark.parametrize("pace", [5e-324, 1e-300, 1e-30, 1e5, 1e300])
def test_no_pace_that_a_device_claims_ends_the_coordinator(pace: float) -> None:
    done, _ = played(RUN, claim(noise(size_of(RUN), 1), seconds_per_step=pace))
    assert (done["event"], done["rounds"]) == ("done", 3)


@pytest.mark.parametrize("weight", [5e-324, 1e-300, 1e12])
def test_no_weight_vanishes_together_with_all_others(weight: float) -> None:
    """A whisper of an update that is too long: nothing was left to divide by."""
    done, _ = played(RUN, claim(np.full(size_of(RUN), 1e3, np.float32), weight=weight))
    assert (done["event"], done["rounds"]) == ("done", 3)


def test_a_device_that_comes_and_goes_does_not_draw_the_whole_fleet_into_a_round() -> None:
    names = {f"device-{i:02}" for i in range(12)}
    run = run_file(
        {"name": "fedavg"},
        run={"rounds": 1, "seed": next(seed for seed in range(99) if BAD in seeds.sample(seed, 1, names, 2))},
        task={"partition": {"kind": "iid", "devices": 12}},
        rounds={"cohort": 2, "quorum": 2, "start_with": 12},
    )
    size, gone = size_of(run), threading.Event()
    honest_wait: list[Callable[[], None]] = []

    def flap(puppet: Puppet, task: Assignment) -> None:
        if gone.is_set():
            return
        gone.set()
        for online in [False, True] * 20:
            presence = puppet.presence(Presence(online=online, installation=BAD, birth=1))
            puppet.transport.publish(topics.presence("default", BAD), presence)
        puppet.say(answer(puppet, task, {"delta": noise(size, 1)}))
        for go in honest_wait:
            go()

    def late(puppet: Puppet, task: Assignment) -> None:
        def go() -> None:
            puppet.say(answer(puppet, task, {"delta": noise(size, 2)}))

        if gone.is_set():
            go()
        else:
            honest_wait.append(go)

    done, asked = played(run, flap, honest=11, then=late)
    assert done["event"] == "done"
    assert sum(count > 0 for count in asked.values()) <= 3, asked


def test_a_budget_is_a_number_of_batches_whatever_the_pace() -> None:
    assert [budget(pace, 10.0).batches for pace in (5e-324, 1e300, 1.0, None)] == [MOST, 1, 8, None]


@pytest.mark.parametrize("key", ["samples", "birth", "protocol"])
def test_a_number_of_thousands_of_digits_is_not_read(key: str) -> None:
    plain = Presence(online=True, installation="pi", birth=1).model_dump_json()
    text = plain[:-1] + f',"{key}":{"9" * 4000}}}'
    with pytest.raises(WireError, match=key):
        read_json(Presence, text.encode())
