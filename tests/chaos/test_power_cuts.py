"""Power cuts in the middle of an upload, at any boundary between two chunks; replayed frames; forgetful brokers."""

import os
import random
import threading
from pathlib import Path
from typing import Any

import msgpack
import pytest
from threaded_fleet import ThreadedFleet

from edgefl.wire import chunks, signed, topics
from edgefl.wire.transport import Message, TransportEvent

THOROUGH = os.environ.get("EDGEFL_CHAOS") == "1"
CUTS = 500 if THOROUGH else 40
REPLAYS = 1000 if THOROUGH else 300


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer of this little model has six chunks, as one of a large model would."""
    monkeypatch.setattr(chunks, "CHUNK", 400)
    monkeypatch.setattr(chunks, "TOGETHER", (1,))


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.timeout(900)
def test_power_cuts_in_mid_upload_are_counted_once_and_send_no_chunk_twice(tmp_path: Path, figures: Any) -> None:
    seed = 11
    rng, lock = random.Random(seed), threading.Lock()

    def cut() -> int | None:
        with lock:
            return rng.randrange(6) if threaded_fleet.cuts < CUTS else None

    threaded_fleet = ThreadedFleet(tmp_path, run={"rounds": CUTS // 3})
    threaded_fleet.start(cut)
    threaded_fleet.finish(f"seed {seed}")
    assert threaded_fleet.cuts >= CUTS, "the run ended before the power was cut often enough"
    again = sum(count - 1 for count in threaded_fleet.sent_chunks.values())
    answers = {head[4:36] for head in threaded_fleet.sent_chunks}
    assert len(answers) == threaded_fleet.run.run.rounds * 3, "an update was trained twice"
    assert again <= threaded_fleet.cuts, f"seed {seed}: {again} chunks were sent again after {threaded_fleet.cuts} cuts"
    figures(
        "power cut of a device in mid-upload",
        "agents in threads, broker in memory, chunks of 400 bytes, cut at a chunk boundary drawn at random",
        seed,
        f"{threaded_fleet.cuts} of {threaded_fleet.cuts} counted exactly once, same model; {again} chunks sent again",
    )


@pytest.mark.timeout(900)
def test_no_replayed_frame_is_accepted(tmp_path: Path, figures: Any) -> None:
    threaded_fleet = ThreadedFleet(tmp_path, run={"rounds": 24 if THOROUGH else 14})
    heard: dict[tuple[str, bytes], None] = {}
    parrot = threaded_fleet.broker.client("parrot")
    replayed = 0

    def listen(event: TransportEvent) -> None:
        if isinstance(event, Message):
            heard[event.topic, event.payload] = None

    def replay(event: dict[str, object]) -> None:
        nonlocal replayed
        if event["event"] == "round":
            for topic, payload in list(heard):
                parrot.publish(topic, payload)
                replayed += 1

    parrot.start(listen)
    said = topics.up("default", "chaos", "+"), topics.down("default", "chaos", "+"), topics.round("default", "chaos")
    parrot.subscribe(*said)
    threaded_fleet.watch = replay
    threaded_fleet.start()
    threaded_fleet.finish("replay")
    assert replayed >= REPLAYS
    answers = [payload for topic, payload in heard if topic.endswith("/up") and _kind(payload) == "answer"]
    assert len(answers) == threaded_fleet.run.run.rounds * 3, "a replayed task made a device train again"
    figures(
        "replayed frames",
        "everything said in a run of three devices, said again after every round",
        "none needed",
        f"0 of {replayed} accepted, same model",
    )


def _kind(payload: bytes) -> str:
    part = signed.opened(payload).payload
    size = int.from_bytes(part[chunks.HEAD + 6 : chunks.HEAD + 10], "little")
    return str(msgpack.unpackb(part[chunks.HEAD + 18 :][:size])["kind"])


def test_a_broker_that_forgets_everything_between_rounds_changes_nothing(tmp_path: Path) -> None:
    threaded_fleet = ThreadedFleet(tmp_path)
    threaded_fleet.watch = lambda event: (
        threaded_fleet.broker.restart() if event["event"] in {"answered", "round"} else None
    )
    threaded_fleet.start()
    threaded_fleet.finish("restart of the broker at every answer")
