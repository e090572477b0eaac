"""The live view: who matters first, why it waits always, and never more lines than the terminal has."""

import io
import json
import logging
import sys
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console
from rich.live import Live

from coordinator import device_table, view
from coordinator.device_table import Standing, ranked
from coordinator.roster import Device
from coordinator.service import Coordinator
from coordinator.view import JsonView, LiveView, PlainView
from edgefl import logs
from edgefl.config import RunFile
from edgefl.config_reader import parse
from edgefl.events import Abandoned, Declined, Fact, Preparing, Refused, Round, Waiting, from_json
from edgefl.protocol.chunks import Assembler
from edgefl.protocol.memory import MemoryBroker
from edgefl.protocol.messages import Presence


def device(name: str, doing: str = "idle", *, live: bool = True) -> Device:
    here = Presence(online=doing != "offline", installation="i", birth=1, samples=120)
    return Device(name, here, Assembler(1 << 20), live=live, doing=doing)


def watched(*devices: Device, width: int = 80, height: int = 24, **state: Any) -> tuple[LiveView, Coordinator]:
    table = {"run": {"name": "view"}, "rounds": {"cohort": 3, "quorum": 2}}
    run = parse(RunFile, table, "test", environment={})

    def unprepared() -> Any:
        raise AssertionError("nobody asked for the job")

    coordinator = Coordinator(run, MemoryBroker().client("coordinator"), unprepared)
    coordinator.inbox.devices.update({d.id: d for d in devices})
    coordinator.rounds = replace(coordinator.rounds, **state)
    live = LiveView(Console(file=io.StringIO(), width=width, height=height, force_terminal=False))
    live.coordinator, live.broker = coordinator, "mqtt://localhost:1883"
    return live, coordinator


def lines(live: LiveView) -> list[str]:
    with live.console.capture() as seen:
        live.console.print(live.draw())
    return seen.get().splitlines()


def test_who_matters_comes_first_and_ghosts_last():
    fleet = [
        device("a-ghost", "offline"),
        device("b-idle"),
        device("c-answered", "answered"),
        device("d-training", "training, step 9"),
        device("e-failing", "declined: no memory"),
        device("f-late", "asked"),
    ]
    asked = ("c-answered", "f-late")
    state = {"phase": "open", "round": 3, "asked": asked, "present": frozenset(asked)}
    _, coordinator = watched(**state, answered=frozenset(asked[:1]))
    ranks, _ = ranked(fleet, coordinator.rounds, {}, 0.0)
    assert [d.id[0] for _, d in ranks] == ["e", "f", "d", "c", "b", "a"]
    assert ranks[1][0] is Standing.AWAITED


def test_nobody_is_late_before_half_have_answered():
    _, coordinator = watched(
        phase="open", round=3, asked=("a", "b", "c"), present=frozenset("abc"), answered=frozenset("a")
    )
    assert device_table.standing(device("b", "asked"), coordinator.rounds) is Standing.WORKING


def test_a_device_that_has_long_been_away_is_only_counted():
    ghost = device("ghost", "offline", live=False)
    fleet = [device("here"), device("long-gone", "offline"), device("left", "offline"), ghost]
    _, coordinator = watched()
    ranks, forgotten = ranked(fleet, coordinator.rounds, {"long-gone": 0.0, "left": 90.0}, now=100.0)
    assert ([d.id for _, d in ranks], forgotten) == (["here", "left"], 2)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (60, 15)])
def test_three_devices_at_work_are_seen_among_thirty_ghosts(width, height):
    ghosts = [device(f"a-ghost-{i:02d}", "offline", live=False) for i in range(30)]
    workers = [device(f"pi-{i}", "training, step 4") for i in range(3)]
    live, _ = watched(*ghosts, *workers, width=width, height=height)
    picture = lines(live)
    assert len(picture) < height
    assert all(any(f"pi-{i} " in line for line in picture) for i in range(3))
    assert any("more" in line and "offline" in line for line in picture)


def test_why_it_waits_is_never_cut_off():
    names = tuple(f"sensor-in-a-long-named-building-{i:02d}" for i in range(12))
    ghosts = [device(f"ghost-{i}", "offline") for i in range(40)]
    live, coordinator = watched(
        *ghosts, width=60, height=15, phase="open", round=2, asked=names, present=frozenset(names)
    )
    for i in range(5):
        live.tell(Declined(f"d{i}", 1, "it is too warm here " * 20))
    picture = lines(live)
    assert len(picture) < 15
    said = "".join(line.strip("│╭╮╰╯─ ") for line in picture)
    assert "".join(coordinator.waiting().split()) in "".join(said.split())


def test_a_long_note_keeps_within_the_frame_and_a_repeated_one_is_counted():
    live, _ = watched(device("a"))
    for _ in range(4):
        live.tell(Refused("a", "wire.malformed", "x" * 900))
    picture = lines(live)
    assert {len(line) for line in picture} == {80}
    assert sum("xxx" in line or "refused" in line for line in picture) == view.NOTE_LINES
    live.tell(Refused("a", "wire.malformed", "short"))
    live.tell(Refused("a", "wire.malformed", "short"))
    assert any("refused: a: short (2 times)" in line for line in lines(live))


def test_a_device_that_is_bounded_in_every_round_is_one_note():
    live, _ = watched(device("a"))
    for round in range(1, 4):
        live.tell(Round(round, accuracy=0.5, balanced_accuracy=0.5, loss=1.0, bounded={"a": {"delta": 0.1}}))
    assert next(line for line in lines(live) if "bounded" in line).count("(3 times)") == 1
    assert len(live.notes) == 1


def test_a_resumed_run_shows_its_own_round_before_its_reports_are_told_again():
    live, _ = watched(round=20, phase="gathering")
    assert any("round 20 of" in line for line in lines(live))


def test_what_is_waited_for_is_told_once_when_it_lasts(capsys):
    _, coordinator = watched(round=2, phase="gathering")
    told: list[Fact] = []
    coordinator.tell = told.append
    for second in range(0, 60, 5):
        coordinator._tell_why(coordinator.began + second)
    assert told == [Waiting("round 2 needs 2 devices, have 0")]
    PlainView().tell(told[0])
    assert capsys.readouterr().out == "round 2 needs 2 devices, have 0\n"


def test_figures_are_never_cut_by_long_words():
    fleet = [device("d-1", "declined: " + "its samples have another shape " * 9), device("d-2", "answered")]
    fleet += [device(f"ghost-{i}", "offline", live=False) for i in range(30)]
    fleet[1].bytes_up = 128_400_000
    live, _ = watched(*fleet)
    picture = "\n".join(lines(live))
    assert all(whole in picture for whole in ("samples", "ms/step", "128.4 MB", "and 30 more", "30 offline"))


def test_old_notes_fade_and_go(monkeypatch):
    now = 1000.0
    monkeypatch.setattr(view, "monotonic", lambda: now)
    live, _ = watched(device("a"))
    live.tell(Abandoned(1, "nobody came"))
    assert view._shown(live.notes[0], now, 76, live.console)[0].style == "yellow"
    assert view._shown(live.notes[0], now + view.FADED + 1, 76, live.console)[0].style == "dim"
    now += view.OLD + 1
    assert not any("nobody came" in line for line in lines(live))


def test_what_is_going_on_before_the_first_device_is_said_everywhere(capsys):
    with PlainView().busy("rehearsing"):
        assert capsys.readouterr().out == "rehearsing ...\n"
    with JsonView().busy("rehearsing"):
        assert from_json(json.loads(capsys.readouterr().out)) == Preparing("rehearsing")
    live, _ = watched()
    live.console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    with live.busy("rehearsing [run]"):
        pass
    assert "rehearsing [run]" in live.console.file.getvalue()


def test_a_log_line_goes_above_the_picture_not_through_it(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    root, before = logging.getLogger(), logging.getLogger().handlers[:]
    try:
        logs.set_up("warning")
        with Live("picture", console=Console(file=screen, width=80, force_terminal=True)):
            logging.getLogger("test").warning("declined device=a")
    finally:
        root.handlers[:] = before
    assert "declined device=a" in screen.getvalue()
    assert sys.stderr.getvalue() == ""
