"""Three devices of ten get a tenth of a processor: what that does to the length of a round is measured."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fleet import Fleet

DEVICES, SLOW, ROUNDS = 10, 3, 40
AWAKE, ASLEEP = 0.01, 0.09  # seconds of every tenth of one

pytestmark = [
    pytest.mark.broker,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.environ.get("EDGEFL_CHAOS") != "1", reason="takes minutes: make chaos"),
]


@contextmanager
def _slowed(pids: list[int]) -> Iterator[None]:
    """These processes run for a tenth of the time."""
    over = threading.Event()

    def signalled(number: int) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def breathe() -> None:
        while not over.is_set():
            signalled(signal.SIGSTOP)
            over.wait(ASLEEP)
            signalled(signal.SIGCONT)
            over.wait(AWAKE)

    thread = threading.Thread(target=breathe, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(30)


def _lengths(folder: Path, slow: int) -> np.ndarray[Any, Any]:
    """Seconds of every round but the first ones, in which devices start and their speed is not yet known."""
    with Fleet(
        folder,
        run={"rounds": ROUNDS},
        task={"model": "mlp", "partition": {"kind": "iid", "devices": DEVICES}},
        algorithm={"name": "fedavg", "batch": 32},
        rounds={"cohort": 7, "quorum": 5, "over_select": 1.3, "start_with": DEVICES, "deadline": 10.0},
    ) as fleet:
        life = fleet.coordinator()
        fleet.all_agents()
        assert life.wait_for(event="round", round=2)
        with _slowed([fleet.agents[name].pid for name in fleet.names[:slow]]):
            assert life.finished(600) is not None
        rounds = {event["round"]: event["seconds"] for event in life.events if event["event"] == "round"}
    assert sorted(rounds) == list(range(1, ROUNDS + 1)), "a round is missing"
    return np.array([rounds[number] for number in range(5, ROUNDS + 1)])


def test_slow_devices_do_not_hold_up_the_others(tmp_path: Path, figures: Any) -> None:
    fast, mixed = _lengths(tmp_path / "fast", 0), _lengths(tmp_path / "mixed", SLOW)
    (fast_half, fast_most), (half, most) = (np.percentile(lengths, [50, 95]) for lengths in (fast, mixed))
    figures(
        "slow devices",
        f"{DEVICES} real agents, 7 wanted, 10 asked; {SLOW} of them stopped for 90 ms of every 100",
        "none needed",
        f"{ROUNDS} of {ROUNDS} rounds; median {half:.2f} s, 95 % within {most:.2f} s; with none slow {fast_half:.2f} s"
        f" and {fast_most:.2f} s: {most / fast_most:.1f} times",
    )
