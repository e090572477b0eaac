"""An exporter beside a run: nothing it does reaches the run, and nothing is lost that has room to wait."""

import logging
from collections.abc import Callable
from threading import Event
from typing import ClassVar

import pytest
from stories import EVALUATING, ROUNDS, STARTED

from edgefl.base.events import Evaluating, Fact, Round, Started
from edgefl.watch.exporters.background import BackgroundExporter


class Keeps:
    """Takes what it is told; fails so often before."""

    wants: ClassVar[tuple[type[Fact], ...]] = (Evaluating, Round)

    def __init__(self, failures: int = 0) -> None:
        self.told: list[Fact] = []
        self.failures, self.opened, self.closed = failures, 0, 0

    def make(self) -> "Keeps":
        self.opened += 1
        return self

    def __call__(self, fact: Fact) -> None:
        if self.failures and isinstance(fact, Round):
            self.failures -= 1
            raise OSError("no route to host")
        self.told.append(fact)

    def close(self) -> None:
        self.closed += 1


def aside(exporter: Keeps, make: Callable[[], Keeps] | None = None, **more: int) -> BackgroundExporter:
    return BackgroundExporter("a tool", exporter.wants, make or exporter.make, first=0.01, **more)


def test_it_is_told_what_it_wants_in_order_and_closed_once() -> None:
    exporter = Keeps()
    beside = aside(exporter)
    for fact in (STARTED, *ROUNDS):
        beside(fact)
    beside.close()
    assert (exporter.told, exporter.opened, exporter.closed) == (list(ROUNDS), 1, 1)
    assert not any(isinstance(fact, Started) for fact in exporter.told)


def test_what_fails_is_tried_again_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    exporter, finished = Keeps(failures=3), Event()
    beside = aside(exporter)
    for fact in (EVALUATING, *ROUNDS):
        beside(fact)
    while ROUNDS[-1] not in exporter.told:
        finished.wait(0.01)
    beside.close()
    assert exporter.told == [*[EVALUATING] * 4, *ROUNDS], "and told again what its rounds are of"
    assert (exporter.opened, exporter.closed) == (4, 4), "what failed is opened anew"
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert lines == [
        "export to a tool fails, and is tried again why=no route to host",
        "export to a tool works again",
    ]


def test_one_that_never_works_ends_with_the_run(caplog: pytest.LogCaptureFixture) -> None:
    def never() -> Keeps:
        raise RuntimeError("broken")

    beside = aside(Keeps(), never)
    for fact in ROUNDS:
        beside(fact)
    beside.close(seconds=5.0)
    assert not beside._thread.is_alive()
    assert len(caplog.records) == 1


def test_one_that_hangs_is_left_behind_and_its_queue_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    hanging, entered = Event(), Event()

    class Hangs(Keeps):
        def __call__(self, fact: Fact) -> None:
            entered.set()
            hanging.wait()
            super().__call__(fact)

    exporter = Hangs()
    beside = aside(exporter, room=2)
    beside(ROUNDS[0])
    assert entered.wait(10)
    for fact in (*ROUNDS, *ROUNDS):
        beside(fact)
    beside.close(seconds=0.01)
    assert [record.getMessage() for record in caplog.records] == [
        "export to a tool did not end in 0.01 s; the rest is left out"
    ]
    assert beside.lost == 4
    hanging.set()
    beside.close()
    assert exporter.told == [ROUNDS[0], *ROUNDS[-2:]], "the oldest go"
