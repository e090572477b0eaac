"""Tasks that lead nowhere, with the coordinator's key: other runs are served all the same."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fleets import Fleet, loop, prepared, run_file

from coordinator.shell.threaded import Threaded
from device_agent.decide import session
from device_agent.durable.spool import SpooledUpdate
from device_agent.shell import model_cache
from device_agent.shell.setup import Limits
from device_agent.start import AgentHost
from edgefl.job.run.work import pack_broadcast
from edgefl.wire import chunks, signed, topics
from edgefl.wire.codecs import Float32
from edgefl.wire.messages import TO_COORDINATOR, Assignment, DeclinedMessage, Graphs, frame, read
from edgefl.wire.signed import Speaker
from edgefl.wire.signing import Signer, claim
from edgefl.wire.transport import ConnectionMade, Message, Transport, TransportEvent
from tools.in_memory_broker import InMemoryBroker

RUN = run_file({"name": "fedavg"}, run={"rounds": 2}, rounds={"cohort": 4, "quorum": 4, "start_with": 4})
MIB = 1 << 20
SIGNER = Signer.new()
SPEAKER = Speaker(SIGNER, "default", 1)  # with the coordinator's key: whoever has none is not heard
Play = Callable[[Callable[[Transport, Threaded], None]], list[str]]


def say(client: Transport, device: str, message: Any) -> None:
    data = frame(message)
    for part in chunks.split(data, chunks.digest(data)):
        sealed = SPEAKER.seal("down", part, job=message.job, run_id=message.run_id, device=device)
        client.publish(topics.down("default", message.job, device), sealed)


def ask(client: Transport, device: str, model: str, run: str = "r1", round: int = 1) -> None:
    say(client, device, Assignment(job="ghost", run_id=run, round=round, attempt=1, model=model))


def declined(heard: list[TransportEvent]) -> list[str]:
    """Why devices did not do what the attacker asked for."""
    frames = [
        chunks.Assembler(MIB).add(signed.opened(event.payload).payload) for event in heard if isinstance(event, Message)
    ]
    messages = [read(TO_COORDINATOR, whole[1], 0)[0] for whole in frames if whole]
    return [one.reason for one in messages if isinstance(one, DeclinedMessage)]


@pytest.fixture
def besieged(tmp_path: Path) -> Iterator[Play]:
    """Plays the run; the attacker acts right before its first task is out, which has to wait."""
    broker = InMemoryBroker()
    fleet = Fleet(RUN, tmp_path, broker.client, once=False)
    thief, heard = broker.client("thief"), list[TransportEvent]()
    thief.start(heard.append)
    thief.subscribe(topics.up("default", "ghost", "+"))

    def play(act: Callable[[Transport, Threaded], None]) -> list[str]:
        def tell(event: dict[str, Any]) -> None:
            if event["event"] == "asked" and event["round"] == 1:
                act(thief, coordinator)

        coordinator = fleet.coordinator(tell, signer=SIGNER)
        fleet.start_all()
        run_state = coordinator.run()
        assert fleet.exits == {}
        assert run_state.sha256() == loop(RUN).sha256()
        return declined(heard)

    yield play
    fleet.stop()
    fleet.join()


def test_a_task_whose_model_never_comes_does_not_keep_a_device_from_other_runs(
    besieged: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "HOPELESS", 0.2)
    monkeypatch.setattr(model_cache, "STALLED", 0.05)
    reasons = besieged(lambda thief, _: ask(thief, "device-00", "0123456789abcdef"))
    assert reasons == ["model 0123456789abcdef does not come, and other runs wait"]


def publish(thief: Transport, coordinator: Threaded, data: bytes, layout: dict[str, Any] | None = None) -> str:
    """A model of the run 'ghost', signed with the coordinator's key."""
    assert coordinator.shell.artifacts.publisher is not None
    statement = json.loads(claim(coordinator.shell.artifacts.publisher.published[1].manifest).statement)
    known_as = chunks.digest(data)
    statement |= {"job": "ghost", "run_id": "r1", "round": 1, "digest": known_as.hex(), "size": len(data)}
    statement |= {"layout": layout} if layout else {}
    id = known_as.hex()[:16]
    for index, part in enumerate(chunks.split(data, known_as)):
        thief.publish(topics.chunk("default", "ghost", id, index), part, retain=True)
    manifest = coordinator.shell.signer.sign(json.dumps(statement, separators=(",", ":")).encode())
    thief.publish(topics.manifest("default", "ghost", id), manifest, retain=True)
    return id


def graphs() -> tuple[bytes, None]:
    return frame(Graphs(job="ghost"), (prepared(RUN)[0].graphs or b"",)), None


def bomb() -> tuple[bytes, dict[str, Any]]:
    """64 MiB in some kilobytes, for a layout of as many numbers."""
    size = 16 * MIB
    data = pack_broadcast("ghost", 1, np.zeros(size, np.float32), {}, Float32(), compress=True)
    return data, {"names": ["w"], "shapes": [[size]], "buffers": 0}


@pytest.mark.parametrize(
    ("kind", "code"), [(graphs, "wire.malformed"), (bomb, "wire.too_large")], ids=["graphs", "bomb"]
)
def test_a_signed_frame_that_is_no_model_is_declined_and_the_device_goes_on(
    kind: Callable[[], tuple[bytes, dict[str, Any] | None]],
    code: str,
    besieged: Play,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frame_and_changes = kind()
    small = Limits(limit_mb=32)
    monkeypatch.setattr("fleets.AgentHost", lambda *about, **more: AgentHost(*about, **{**more, "limits": small}))

    def act(thief: Transport, coordinator: Threaded) -> None:
        id = publish(thief, coordinator, *frame_and_changes)
        for name in ("device-00", "device-01"):
            ask(thief, name, id)

    reasons = besieged(act)
    assert len(reasons) == 2
    assert all(reason.startswith(code) for reason in reasons)


def test_downloads_that_nobody_wants_any_more_are_not_kept(tmp_path: Path) -> None:
    agent = Fleet(RUN, tmp_path, InMemoryBroker().client).agent("device-00").agent
    agent.transport.start(lambda _: None)
    agent.handle(ConnectionMade())
    for round in range(1, 40):
        assignment = Assignment(job="ghost", run_id="r", round=round, attempt=1, model=f"{round:016x}")
        for part in chunks.split(frame(assignment), chunks.digest(frame(assignment))):
            sealed = SPEAKER.seal("down", part, job="ghost", run_id="r", device="device-00")
            agent.handle(Message(topics.down("default", "ghost", "device-00"), sealed))
    assert list(agent.model_cache.underway) == [f"{39:016x}"]


def test_a_chunk_that_is_asked_for_a_thousand_times_is_sent_once(tmp_path: Path) -> None:
    agent = Fleet(RUN, tmp_path, InMemoryBroker().client).agent("device-00").agent
    agent.transport.start(lambda _: None)
    data = bytes(2 * chunks.CHUNK)
    held = SpooledUpdate("fleet", "fleet.r", 1, "1", "m", data, chunks.digest(data), {})
    agent.outbox.send(held, (0, 1) * 1000)
    assert agent.outbox.published == 1, "both go together"
