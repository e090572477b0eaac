"""The live view: who matters first, why it waits always, and never more lines than the terminal has."""

import io
import json
import logging
import sys
from typing import Any

import pytest
from rich.console import Console
from rich.live import Live

from coordinator.decide import core, vocabulary
from coordinator.decide.rounds import Rounds, Rules, waiting
from coordinator.decide.strikes import Conduct
from edgefl.base import events
from edgefl.base.events import Abandoned, Declined, Fact, Preparing, Refused, Round, Waiting, from_json
from edgefl.system import logs
from edgefl.watch import device_table, terminal_view
from edgefl.watch.device_table import DeviceRank, ranked
from edgefl.watch.overview.overview import Overview
from edgefl.watch.overview.rows import DeviceRow, OpenRound, Snapshot
from edgefl.watch.view import LineView, LiveView, json_line, plain_line

NOW = 1000.0
STARTED = events.Started("view", "r", "mqtt://localhost:1883", "key", "fedavg", 20)


def device(name: str, state: Any = "idle", **more: Any) -> DeviceRow:
    return DeviceRow(name, state=state, samples=120, **{"since": NOW, **more})


def opened(asked: str = "", answered: str = "", awaited: str = "") -> OpenRound:
    return OpenRound(1, 1, 0.0, asked=asked.split(), answered=answered.split(), awaited=awaited.split())


def pictured(*devices: DeviceRow, open: OpenRound | None = None) -> Snapshot:
    overview = Overview()
    overview.tell(STARTED)
    return Snapshot(1, NOW, overview.run, open, [], list(devices), [])


def watched(*devices: DeviceRow, width: int = 80, height: int = 24) -> LiveView:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=False)
    live = LiveView(console, lambda: NOW)
    live.overview.tell(STARTED)
    live.overview.devices = {one.name: one for one in devices}
    for one in devices:
        live.overview._changed.add(one.name, 1)
    return live


def lines(live: LiveView) -> list[str]:
    with live.console.capture() as seen:
        live.console.print(live.draw())
    return seen.get().splitlines()


def test_who_matters_comes_first_and_ghosts_last():
    fleet = [
        device("a-ghost", "offline"),
        device("b-idle"),
        device("c-answered", "answered"),
        device("d-training", "training", steps=9),
        device("e-failing", "declined", why="no memory"),
        device("f-late", "asked"),
    ]
    snapshot = pictured(*fleet, open=opened("c-answered f-late", "c-answered", "f-late"))
    ranks, _ = ranked(snapshot, NOW)
    assert [d.name[0] for _, d in ranks] == ["e", "f", "d", "c", "b", "a"]
    assert ranks[1][0] is DeviceRank.AWAITED


def test_nobody_is_late_before_half_have_answered():
    snapshot = pictured(open=opened("a b c", "a", "b c"))
    assert device_table.rank_of(device("b", "asked"), snapshot) is DeviceRank.WORKING


def test_a_device_that_has_long_been_away_is_only_counted():
    ghost = device("ghost", "offline", live=False)
    left = device("long-gone", "offline", since=0.0), device("left", "offline", since=NOW - 10)
    ranks, forgotten = ranked(pictured(device("here"), *left, ghost), now=NOW)
    assert ([d.name for _, d in ranks], forgotten) == (["here", "left"], 2)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (60, 15)])
def test_three_devices_at_work_are_seen_among_thirty_ghosts(width, height):
    ghosts = [device(f"a-ghost-{i:02d}", "offline", live=False) for i in range(30)]
    workers = [device(f"pi-{i}", "training", steps=4) for i in range(3)]
    live = watched(*ghosts, *workers, width=width, height=height)
    shown = lines(live)
    assert len(shown) < height
    assert all(any(f"pi-{i} " in line for line in shown) for i in range(3))
    assert any("more" in line and "offline" in line for line in shown)


def test_why_it_waits_is_never_cut_off():
    names = tuple(f"sensor-in-a-long-named-building-{i:02d}" for i in range(12))
    ghosts = [device(f"ghost-{i}", "offline") for i in range(40)]
    rules = Rules(rounds=5, seed=1, cohort=12, quorum=12, deadline=60.0)
    reason = waiting(Rounds(rules, "open", round=2, asked=names, present=frozenset(names)))
    live = watched(*ghosts, width=60, height=15)
    live.tell(Waiting(reason, at=NOW))
    for i in range(5):
        live.tell(Declined(f"d{i}", 1, "it is too warm here " * 20, at=NOW))
    shown = lines(live)
    assert len(shown) < 15
    text = "".join(line.strip("│╭╮╰╯─ ") for line in shown)
    assert "".join(reason.split()) in "".join(text.split())


def test_a_long_note_keeps_within_the_frame_and_a_repeated_one_is_counted():
    live = watched(device("a"))
    for _ in range(4):
        live.tell(Refused("a", "wire.malformed", "x" * 900, at=NOW))
    shown = lines(live)
    assert {len(line) for line in shown} == {80}
    assert sum("xxx" in line or "cannot be used" in line for line in shown) == terminal_view.NOTE_LINES
    live.tell(Refused("a", "wire.malformed", "short", at=NOW))
    live.tell(Refused("a", "wire.malformed", "short", at=NOW))
    assert any("a message of a cannot be used (wire.malformed): short (2 times)" in line for line in lines(live))


def test_a_device_that_is_bounded_in_every_round_is_one_note():
    live = watched(device("a"))
    for round in range(1, 4):
        live.tell(
            Round(
                round,
                scores={"accuracy": 0.5, "balanced_accuracy": 0.5, "loss": 1.0},
                bounded={"a": {"delta": 0.1}},
                at=NOW,
            )
        )
    assert next(line for line in lines(live) if "bounded" in line).count("(3 times)") == 1
    assert len(live.overview.snapshot().notes) == 1


def test_a_resumed_run_shows_its_own_round_before_its_reports_are_told_again():
    live = watched()
    live.tell(events.Resumed(20))
    assert any("round 20 of" in line for line in lines(live))


def test_what_is_waited_for_is_told_once_when_it_lasts(capsys):
    rules = Rules(rounds=5, seed=1, cohort=3, quorum=2, deadline=60.0)
    state, _, _ = core.step(
        core.State(Rounds(rules, "gathering", 2), Conduct(3, 60.0)), vocabulary.CoordinatorConnected(0.0)
    )
    told: list[Fact] = []
    while (due := core.deadline(state)) is not None and due < 60:
        state, _, facts = core.step(state, vocabulary.Woken(due))
        told += facts
    reason = "round 2 needs 2 devices, have 0"
    assert told == [Waiting(reason), Waiting(reason, lasts=True)]
    for fact in told:
        LineView(plain_line).tell(fact)
    assert capsys.readouterr().out == f"{reason}\n"


def test_figures_are_never_cut_by_long_words():
    fleet = [device("d-1", "declined", why="its samples have another shape " * 9)]
    fleet += [device("d-2", "answered", bytes_up=128_400_000)]
    fleet += [device(f"ghost-{i}", "offline", live=False) for i in range(30)]
    live = watched(*fleet)
    shown = "\n".join(lines(live))
    assert all(whole in shown for whole in ("samples", "ms/step", "128.4 MB", "and 30 more", "30 offline"))


def test_old_notes_fade_and_go():
    live = watched(device("a"))
    live.tell(Abandoned(1, "nobody came", at=NOW))
    (note,) = live.overview.snapshot().notes
    assert terminal_view.note_lines(note, NOW, 76, live.console)[0].style == "yellow"
    assert terminal_view.note_lines(note, NOW + terminal_view.FADED + 1, 76, live.console)[0].style == "dim"
    assert any("nobody came" in line for line in lines(live))
    live.wall = lambda: NOW + terminal_view.OLD + 1
    assert not any("nobody came" in line for line in lines(live))


def test_what_is_going_on_before_the_first_device_is_said_everywhere(capsys):
    with LineView(plain_line).busy("rehearsing"):
        assert capsys.readouterr().out == "rehearsing ...\n"
    with LineView(json_line).busy("rehearsing"):
        assert from_json(json.loads(capsys.readouterr().out)) == Preparing("rehearsing")
    live = watched()
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
