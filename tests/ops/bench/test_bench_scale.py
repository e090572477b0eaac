"""The scale bench: crowds of real agents in one process answer every round, and nothing is lost."""

from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from edgefl.ops.bench.scale.crowd import Crowd
from edgefl.ops.bench.scale.measure import measure
from edgefl.ops.bench.scale.points import Point
from edgefl.system.reactor import DeadlineReached


@pytest.mark.usefixtures("mosquitto")
def test_a_crowd_answers_every_round_of_a_real_coordinator(tmp_path: Path):
    (one,) = measure([Point(devices=6, cohort=4, params=50)], tmp_path, lambda _: None)
    assert (one.devices, one.cohort, one.asked_again, one.lost) == (6, 4, 0, 0)
    assert min(one.wall, one.coordinator_cpu, one.broker_cpu, one.devices_cpu) > 0
    assert one.broker_in > 4 * 4 * 50 / 1e6
    assert one.coordinator_mb > 0


class Shell:
    """Ends after so many events, and wants to be woken at a moment."""

    def __init__(self, left: int, wakes: float | None) -> None:
        self.left, self.wakes, self.heard = left, wakes, list[Any]()

    def start(self) -> None:
        self.heard.append("start")

    def handle(self, event: Any) -> None:
        self.heard.append(event)
        self.wakes = None if isinstance(event, DeadlineReached) else self.wakes
        self.left -= 1

    def deadline(self) -> float | None:
        return self.wakes

    @property
    def ended(self) -> bool:
        return self.left <= 0


class Clock:
    def now(self) -> float:
        return 5.0

    def wall(self) -> float:
        return 5.0


def test_every_shell_of_a_crowd_hears_its_own_events_and_is_woken_at_its_moment():
    events: SimpleQueue[tuple[int, Any]] = SimpleQueue()
    patient, sleeper = Shell(2, None), Shell(2, 4.0)
    for event in [(0, "a"), (1, "b"), (0, "c"), (0, "nobody hears this")]:
        events.put(event)
    Crowd([patient, sleeper], events, Clock()).serve()
    assert patient.heard == ["start", "a", "c"]
    assert [type(one) for one in sleeper.heard] == [str, DeadlineReached, str]
