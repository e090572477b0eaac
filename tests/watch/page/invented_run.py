"""Facts of a run that never was: as many devices and rounds as a test wants, the same ones each time."""

import math
from collections.abc import Iterator

from edgefl.base import events
from edgefl.base.events import Fact

BEGIN = 1_700_000_000.0
CLASSES = ("walking", "sitting", "standing", "lying", "stairs up", "stairs down")


def invented(devices: int, rounds: int, *, cohort: int = 20, finished: bool = False) -> Iterator[Fact]:
    """The whole story, in order."""
    names = [f"pi-{i:03d}" for i in range(devices)]
    at = BEGIN
    yield events.Started("invented", "0123456789ab", "mqtts://server.local:8883", "ed25519:key", "fedgc", rounds, at=at)
    yield events.Connected(at=at)
    for i, name in enumerate(names):
        yield events.Joined(name, 100 + i % 37, f"host-{i}", "0.1.0", "onnx", at=at + 0.01 * i)
    yield events.Evaluating("sensors", 2000, 0, None, 0, len(CLASSES), CLASSES, at=at + 10)
    at += 10.0
    for round in range(1, rounds + 1):
        asked = tuple(names[(round * 7 + 13 * i) % devices] for i in range(min(cohort, devices)))
        asked = tuple(dict.fromkeys(asked))
        yield events.Asked(round, round, asked, 50_000 * len(asked), at=at)
        missing = asked[:1] if round % 9 == 0 else ()
        for i, name in enumerate(asked):
            took = 1.0 + 0.05 * i + (round % 5) * 0.1
            if name in missing:
                continue
            yield events.Answered(
                name, round, 50_000, steps=50, took=took, seconds_per_step=0.01 + 0.001 * (i % 7), at=at + took
            )
        if missing:
            yield events.Refused(missing[0], "wire.broken", "a frame that cannot be read", at=at + 2.5)
        at += 3.0
        yield events.Closed(round, tuple(name for name in asked if name not in missing), missing, at=at)
        at += 0.4
        yield report(round, rounds, len(asked) - len(missing), at)
    if finished:
        yield events.Done(
            "invented", "fedgc", rounds, scores={"accuracy": 0.9, "loss": 0.3}, model_sha256="c0ffee" * 10, at=at
        )


def report(round: int, rounds: int, devices: int, at: float) -> events.Round:
    """A round's figures: a curve that rises and trembles."""
    progress = 1 - math.exp(-4 * round / rounds)
    tremble = 0.02 * math.sin(round * 1.7)
    accuracy = 0.15 + 0.78 * progress + tremble
    per_class = tuple(
        max(0.0, min(1.0, accuracy + 0.2 * math.sin(round / 9 + i * 1.3) * (1.1 - progress))) for i in range(6)
    )
    return events.Round(
        round,
        scores={
            "accuracy": accuracy,
            "balanced_accuracy": accuracy - 0.03,
            "loss": 2.2 * math.exp(-3 * round / rounds) + 0.2 + tremble,
        },
        forgetting=0.03 + 0.02 * math.sin(round / 3),
        per_class=per_class,
        devices=devices,
        bytes_up=50_000 * devices,
        bytes_down=50_000 * devices,
        seconds=3.4 + (round % 11 == 0) * 4,
        waiting_seconds=(round % 11 == 0) * 4.0,
        at=at,
    )
