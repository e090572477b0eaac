"""What a coordinator said once is done once: recorded and forged messages of every kind do nothing."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from fleets import Fleet, loop, prepared, run_file, until

from device_agent.decide import session
from device_agent.durable.replay import RUNS, Replays
from device_agent.shell.service import Agent
from edgefl.base.errors import WireError
from edgefl.sim.world import VirtualClock, World
from edgefl.system.clock import SystemClock
from edgefl.system.disk import Disk, FolderDisk
from edgefl.wire import chunks, topics
from edgefl.wire.messages import Assignment, JobState, Missing, Receipt, Refusal, frame
from edgefl.wire.signed import Speaker
from edgefl.wire.signing import Signer
from edgefl.wire.transport import Message, Transport, TransportEvent
from tools.failing_disk import FailingDisk
from tools.in_memory_broker import InMemoryBroker

RUN = run_file({"name": "fedavg"}, run={"rounds": 2}, rounds={"cohort": 4, "quorum": 4, "start_with": 4})
DEVICE = "device-00"
DOWN, STATE = topics.down("default", "fleet", DEVICE), topics.state("default", "fleet")
ROUND = topics.round("default", "fleet")


class Recorded:
    """A fleet at an in-memory broker, and somebody there who wrote down all that was said and can say it again."""

    def __init__(self, folder: Path) -> None:
        self.broker, self.signer = InMemoryBroker(), Signer.new()
        self.fleet = Fleet(RUN, folder, self.broker.client, once=False)
        self.disk_recorder: list[Message] = []
        self.parrot: Transport = self.broker.client("parrot")
        self.parrot.start(self._hear)
        self.parrot.subscribe("edgefl/v1/default/#")

    def _hear(self, event: TransportEvent) -> None:
        if isinstance(event, Message) and event.payload:
            self.disk_recorder.append(event)

    @property
    def agent(self) -> Agent:
        return self.fleet.agents[DEVICE]

    def play(self) -> None:
        run_state = self.fleet.coordinator(signer=self.signer).run()
        assert run_state.sha256() == loop(RUN).sha256()
        lives = self.fleet.agents.values()
        until(lambda: all(any(heard.ended for heard in agent.inbound.replays.runs.values()) for agent in lives))

    def recorded(self, topic: str) -> list[bytes]:
        return [message.payload for message in self.disk_recorder if message.topic == topic]

    def models(self) -> None:
        """The models of the run stand at the broker again."""
        for message in [one for one in self.disk_recorder if "/model/" in one.topic and one.topic != ROUND]:
            self.parrot.publish(message.topic, message.payload, retain=True)

    def say(self, topic: str, payloads: list[bytes]) -> None:
        """Say it, and wait until the agent has dealt with it: a message nobody understands is the last one."""
        before = self.agent.refusals["message.unsigned"]
        for payload in payloads:
            self.parrot.publish(topic, payload)
        self.parrot.publish(DOWN, b"the end")
        until(lambda: self.agent.refusals["message.unsigned"] > before)

    def restart(self) -> None:
        self.fleet.hosts[DEVICE].stop()
        until(lambda: DEVICE in self.fleet.exits)
        self.fleet.start(self.fleet.agent(DEVICE))
        until(lambda: self.agent.session.online)

    def trained(self) -> bool:
        """Whether the agent works, or did, on anything since it was started or the run ended."""
        return bool(self.agent.session.task or self.agent.held or self.agent.trainer.number)

    def close(self) -> None:
        self.fleet.stop()
        self.fleet.join()


@pytest.fixture
def played(tmp_path: Path) -> Iterator[Recorded]:
    """After a run that came to its end."""
    recorded = Recorded(tmp_path)
    recorded.fleet.start_all()
    recorded.play()
    yield recorded
    recorded.close()


def test_everything_that_was_said_to_a_device_does_nothing_after_the_end_of_the_run(played: Recorded) -> None:
    done = played.agent.trainer.number
    messages = played.recorded(DOWN)
    called = played.recorded(ROUND)
    assert (len(messages), len(called)) == (1, 2), "two calls, which say that round 1 was counted, and a receipt"
    played.models()
    played.say(DOWN, messages)
    played.say(ROUND, called)
    assert played.agent.trainer.number == done
    assert not session.known(played.agent.session)
    assert played.agent.refusals["message.replayed"] == len(messages) + len(called)


@pytest.mark.parametrize("lost", [False, True], ids=["stopped", "files of a power cut"])
def test_nor_after_a_restart_of_the_agent(lost: bool, played: Recorded) -> None:
    if lost:  # the newest file is torn: the one before it was synced at the end of the run
        replays = played.agent.inbound.replays
        replays._write(synced=False)
        played.agent.inbound.replays._changed = False
        FolderDisk(played.fleet.folder / DEVICE).truncate(replays.names[replays._slot], 40)
    messages, called = played.recorded(DOWN), played.recorded(ROUND)
    played.restart()
    played.models()
    played.say(DOWN, messages)
    played.say(ROUND, called)
    assert not played.trained()
    assert played.agent.refusals["message.replayed"] == len(messages) + len(called)


def test_a_state_of_an_earlier_round_does_not_roll_an_agent_back(played: Recorded) -> None:
    states = played.recorded(STATE)
    played.say(STATE, states[:-1])
    assert played.agent.refusals["message.replayed"] == len(states) - 1
    assert not played.agent.session.seen
    before = played.agent.refusals["message.replayed"]
    played.say(STATE, states[-1:] * 3)
    assert played.agent.refusals["message.replayed"] == before, "the broker may give the last one to whoever comes"


def forged(message: Any, device: str, signer: Signer | None) -> bytes:
    data = frame(message)
    part = next(chunks.split(data, chunks.digest(data)))
    if signer is None:
        return part
    return Speaker(signer, "default", 1 << 31).seal("down", part, job="fleet", run_id=RUN_ID, device=device)


RUN_ID = "0123456789ab"
FORGED: dict[str, Callable[[str], Any]] = {
    "task": lambda run: Assignment(job="fleet", run_id=run, round=1, attempt=9, model="0" * 16),
    "receipt": lambda _: Receipt(job="fleet", round=1, digest=bytes(32), verdict="accepted"),
    "refusal": lambda _: Refusal(code="device.key", reason="go away"),
    "missing": lambda _: Missing(digest=bytes(32), indexes=(0,)),
}


@pytest.mark.parametrize("signed", [False, True], ids=["unsigned", "signed by another"])
@pytest.mark.parametrize("kind", FORGED)
def test_what_the_coordinator_did_not_sign_is_not_heard(kind: str, signed: bool, played: Recorded) -> None:
    done, online = played.agent.trainer.number, played.agent.attendance.pause.until
    played.models()
    played.say(DOWN, [forged(FORGED[kind](RUN_ID), DEVICE, Signer.new() if signed else None)])
    code = "message.key" if signed else "message.unsigned"
    assert played.agent.refusals[code] >= 1
    assert (played.agent.trainer.number, played.agent.attendance.pause.until) == (done, online)
    assert not session.known(played.agent.session)


def test_a_task_forged_from_a_recorded_manifest_is_not_trained(played: Recorded) -> None:
    """The attack as it was: the manifest is the coordinator's, the task is not."""
    done = played.agent.trainer.number
    model = next(m.topic.split("/")[5] for m in played.disk_recorder if m.topic.endswith("/manifest"))
    run = next(iter(played.agent.inbound.replays.runs))
    played.models()
    task = Assignment(job="fleet", run_id=run, round=1, attempt=7, model=model)
    played.say(DOWN, [forged(task, DEVICE, None)])
    assert played.agent.trainer.number == done


def test_what_was_said_to_one_device_is_not_heard_by_another(played: Recorded) -> None:
    other = played.recorded(topics.down("default", "fleet", "device-01"))
    played.say(DOWN, other)
    assert played.agent.refusals["message.signature"] == len(other)


def test_an_unsigned_state_is_not_heard(played: Recorded) -> None:
    state = JobState(job="fleet", run_id=RUN_ID, phase="training", round=1).model_dump_json().encode()
    before = played.agent.refusals["message.unsigned"]
    played.say(STATE, [state])
    assert played.agent.refusals["message.unsigned"] == before + 2, "and the one that says the end"
    assert not played.agent.session.seen


def test_the_next_run_of_the_same_key_is_served_and_two_at_once_too(played: Recorded) -> None:
    played.play()
    others = [run_file({"name": "fedavg"}, run={"name": name, "rounds": 2}) for name in ("one", "two")]
    for run in others:
        prepared(run)  # one after the other: a model is not exported in two threads at once
    coordinators = [played.fleet.coordinator(run=run, signer=played.signer) for run in others]
    threads = [threading.Thread(target=coordinator.run, daemon=True) for coordinator in coordinators]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    assert played.agent.refusals["message.replayed"] == 0


# ---- what a device remembers ---------------------------------------------------------------------------------------


@pytest.fixture
def disk() -> FailingDisk:
    return FailingDisk()


def replays_of(disk: Disk) -> Replays:
    return Replays(disk, "f", SystemClock())


def test_what_was_heard_outlives_a_kill_without_a_sync(disk: FailingDisk) -> None:
    replays = replays_of(disk)
    for counter in range(6):
        replays.new_message("k", "r", counter)
    again = replays_of(disk)
    with pytest.raises(WireError, match="came again"):
        again.new_message("k", "r", 5)
    again.new_message("k", "r", 6)


@pytest.mark.parametrize("seed", range(50))
def test_a_power_cut_leaves_at_least_what_was_synced(seed: int, disk: FailingDisk) -> None:
    replays = replays_of(disk)
    for counter in range(3):
        replays.new_message("k", "r" * (counter + 1), counter)
    replays.sync()
    for counter in range(3, 9):
        replays.new_message("k", f"run-{counter}", counter)
    disk.crash(Random(seed))
    again = replays_of(disk)
    with pytest.raises(WireError, match="came again"):
        again.new_message("k", "rrr", 2)
    again.new_message("k", "r", 9)


def test_a_shorter_one_is_read_where_a_longer_one_stood(disk: FailingDisk) -> None:
    replays = replays_of(disk)
    for counter in range(20):
        replays.new_message("k", f"run-{counter}", counter)
    replays.new_message("other", "r", 1)
    assert list(replays_of(disk).runs) == ["r"]


def test_it_is_synced_once_a_minute(disk: FailingDisk) -> None:
    clock = VirtualClock(world := World())
    replays, slots = Replays(disk, "f", clock), []
    for counter in range(10):
        world.now += 20.0
        replays.new_message("k", "r", counter)
        slots.append(replays._slot)
    assert slots == [0, 0, 0, 1, 1, 1, 1, 0, 0, 0]


def test_a_run_that_was_forgotten_does_not_come_back(disk: FailingDisk) -> None:
    replays = replays_of(disk)
    for number in range(RUNS + 1):
        replays.new_state("k", f"r{number}", number, finished=True)
    with pytest.raises(WireError, match="is older than"):
        replays_of(disk).new_message("k", "r0", 0)
    replays.new_message("k", "new", RUNS + 1)


def test_a_full_disk_costs_nothing_but_the_memory_of_a_restart() -> None:
    replays = replays_of(FailingDisk(capacity=0))
    replays.new_message("k", "r", 5)
    with pytest.raises(WireError, match="came again"):
        replays.new_message("k", "r", 5)
