"""What `edgefl status` shows: the runs there are, one of them with its devices, who was slow, one device's story."""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from edgefl.base.device_labels import known_names, values_of
from edgefl.base.events import Evaluated
from edgefl.base.vitals import described, glance
from edgefl.base.where import Where, parse
from edgefl.learn.evaluation import wording
from edgefl.learn.evaluation.figures import figures as judged
from edgefl.ops.run_lookup import RunLookup, look_again
from edgefl.ops.sources import DeviceStory
from edgefl.system.moments import ago, shown
from edgefl.watch.device_table import ranked, words
from edgefl.watch.overview.answer_times import AnswerTime, Pace
from edgefl.watch.overview.rows import ABSENT, DeviceRow, Snapshot
from edgefl.watch.overview.troubles import not_in_run, of_the_run, trouble_with
from edgefl.watch.terminal_view import picture

TROUBLES = 20  # devices that need a person have a line each
NOTES = 5  # what went wrong lately
LONG = 40  # letters of a device's reason in the table
EVERY = 1.0  # seconds between two looks, or ten times as long as one takes


def narrowed(runs: Sequence[RunLookup], where: str | None) -> list[RunLookup]:
    """Return the runs with only those devices that `--where` means; a label that none of them has is an error."""
    if where is None:
        return list(runs)
    expression = parse(where, "--where")
    expression.check_names(known_names(row.labels for looked in runs for row in looked.snapshot.devices), "--where")
    return [replace(looked, snapshot=_only(looked.snapshot, expression)) for looked in runs]


def _only(s: Snapshot, where: Where) -> Snapshot:
    rows = [row for row in s.devices if where.matches(values_of(row.name, row.labels, row.properties))]
    return replace(s, devices=rows)


def watch(looked: RunLookup, console: Console, where: str | None = None) -> RunLookup:
    """Its picture, again and again, until the run has ended or Ctrl-C is pressed; return how it stands then."""
    with suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False, transient=True) as live:
        while looked.going_on:
            live.update(picture(looked.snapshot, console, time.time()), refresh=True)
            began = time.monotonic()
            (looked,) = narrowed([look_again(looked)], where)
            time.sleep(max(EVERY, 10 * (time.monotonic() - began)))
    return looked


def runs_table(runs: Sequence[RunLookup], now: float) -> Table:
    """One line for each run."""
    table = _table("run", "state", "round", "", "devices", "last heard of", "where")
    for looked in runs:
        s, run = looked.snapshot, looked.snapshot.run
        fleet = of_the_run(s.devices)
        devices = f"{_here(fleet)} of {len(fleet)} here" if looked.going_on else f"{len(fleet)}"
        figures = "".join(f"{one.title} {one.shown}" for one in judged(s.opinion.scores)[:1]) if s.opinion else ""
        style = {"interrupted": "yellow", "paused": "red", "broker away": "red", "finished": "dim"}.get(
            looked.state, ""
        )
        cells = run.name, looked.state, f"{run.rounds_done} of {run.rounds}", figures, devices
        table.add_row(*map(Text, cells), Text(ago(now - s.at) if s.at else "-"), Text(looked.where), style=style)
    return table


def run_page(looked: RunLookup, now: float, *, cut: bool = True) -> RenderableType:
    """One run: where it stands, why it waits, every device with when and why, and what went wrong lately.

    Long reasons are `cut` for a terminal, where there are lines for them below the table.
    """
    s, run = looked.snapshot, looked.snapshot.run
    head = f"{run.name}  {run.algorithm}  {looked.state}, {run.rounds_done} of {run.rounds} rounds"
    parts: list[RenderableType] = [Text(head, style="bold")]
    if s.opinion and (figures := wording.scores(s.opinion)):
        spread = f"  ({wording.fleet(s.opinion)})" if isinstance(s.opinion, Evaluated) else ""
        parts.append(Text(figures + spread, style="green"))
    ended = f", ended {shown(run.ended_at)}" if run.ended_at else ""
    restarts = f", restarted {often(run.restarts)}" if run.restarts else ""
    parts.append(Text(f"began {shown(run.started_at)}{ended}{restarts}; {looked.where}", style="dim"))
    parts += [Text(line, style="yellow" if looked.going_on else "") for line in _why(looked, now)]
    parts += [Text(""), fleet_table(s, now, cut=cut)]
    if lines := troubles(s, now):
        parts += [Text(""), *(Text(line, style="yellow") for line in lines)]
    if s.notes:
        parts.append(Text(""))
    for note in s.notes[-NOTES:]:
        repeated = f" ({often(note.times)})" if note.times > 1 else ""
        parts.append(
            Text(f"{shown(note.at)}  {note.text}{repeated}", style="yellow" if note.kind == "warning" else "dim")
        )
    return Group(*parts)


def troubles(s: Snapshot, now: float) -> list[str]:
    """Return a line for each device that needs a person, and how many of the fleet are there."""
    fleet = of_the_run(s.devices)
    here, ended = _here(fleet), s.run.state in ("finished", "interrupted")
    lines = [f"devices there: {here} of {len(fleet)}"] if here < len(fleet) and not ended else []
    each = [trouble for row in s.devices if (trouble := trouble_with(row, now))]
    lines += [f"{one.device} {one.text} (since {shown(one.since)})" for one in each[:TROUBLES]]
    lines += [f"and {len(each) - TROUBLES} more devices: --json lists them"] * (len(each) > TROUBLES)
    if others := sorted(row.name for row in s.devices if not_in_run(row)):
        named = ", ".join(others[:TROUBLES]) + f" and {len(others) - TROUBLES} more" * (len(others) > TROUBLES)
        lines.append(f"not in this run ([devices] of its run file): {named}")
    if left := sorted(row.name for row in s.devices if row.state == "excluded"):
        named = ", ".join(left[:TROUBLES]) + f" and {len(left) - TROUBLES} more" * (len(left) > TROUBLES)
        lines.append(f"not asked (rounds.where does not mean them): {named}")
    return lines


def _here(fleet: Sequence[DeviceRow]) -> int:
    return sum(row.live and row.state not in ABSENT for row in fleet)


def _why(looked: RunLookup, now: float) -> list[str]:
    """Why it waits, and until when."""
    run, here = looked.snapshot.run, looked.snapshot.open
    if run.state == "finished":
        return [run.waiting]
    if not looked.going_on:
        return [f"no coordinator is at work on it: the same `edgefl coordinator start` goes on. {run.waiting}"]
    lines = [run.waiting] if run.waiting else []
    if run.paused:
        lines.insert(0, f"paused: {run.paused}")
    if here and here.deadline_at is not None and here.closed_at is None:
        left = here.deadline_at - now
        more = f", extended {often(here.extended)}" if here.extended else ""
        lines.append(f"its time is up {'now' if left <= 0 else f'in {left:.0f} s'}{more}")
    return lines


def fleet_table(s: Snapshot, now: float, *, cut: bool = True) -> Table:
    """Every device that the run has seen."""
    told = any(glance(row.vitals or {}) for row in s.devices)
    more = ["machine"] if told else []
    titles = "device", "doing", "last seen", "samples", "took", "ms/step", "answers", "late", "missed", "version"
    table = _table(*titles, *more)
    for column in (3, 4, 5, 6, 7, 8):
        table.columns[column].justify = "right"
    ranks = {row.name: rank for rank, row in ranked(s, now)[0]}
    for row in sorted(s.devices, key=lambda one: (ranks.get(one.name, 9), one.name)):
        doing = words(row, ranks[row.name]) if row.name in ranks else _away(row, now)
        cells = (
            row.name,
            _short(doing) if cut else doing,
            ago(now - row.last_seen) if row.last_seen else "-",
            str(row.samples),
        )
        figures = _seconds(row.took), _milli(row.seconds_per_step), *map(str, (row.answers, row.late, row.missed))
        faring = [glance(row.vitals or {})] if told else []
        style = "dim" if row.state == "offline" else ""
        table.add_row(*map(Text, (*cells, *figures, row.version, *faring)), style=style)
    return table


def slow_table(paces: Sequence[Pace]) -> Table:
    """Who was slow."""
    figures = "median", "slowest", "in round", "ms/step", "x its cohort", "waited for"
    table = _table("device", "answers", "late", "missed", *figures)
    for column in table.columns[1:]:
        column.justify = "right"
    for one in paces:
        round = "-" if one.slowest_round is None else str(one.slowest_round)
        times = "-" if one.times_cohort is None else f"{one.times_cohort:.1f}"
        took = _seconds(one.median_took), _seconds(one.slowest_took), round, _milli(one.seconds_per_step), times
        waited = f"{one.held_up} rounds" if one.held_up else "-"
        cells = one.device, *map(str, (one.answers, one.late, one.missed)), *took, waited
        table.add_row(*map(Text, cells), style="yellow" if one.slow else "")
    return table


def device_page(story: DeviceStory, usual: dict[int, float], now: float) -> RenderableType:
    """One device: what is known of it, its answers, what happened to it."""
    row = story.device
    seen = f"last seen {shown(row.last_seen)}" + (f", {ago(now - row.last_seen)}" if row.last_seen else "")
    memory = "" if row.memory_mb is None else f"{row.memory_mb} MiB"
    labels = " ".join(f"{name}={value}" for name, value in row.labels.items())
    about = ", ".join(word for word in (row.host, row.back_end, row.version, row.arch, memory, labels) if word)
    counts = (
        f"{row.answers} answers, {row.late} late, {row.missed} missed, {row.declined} declined, {row.strikes} refused"
    )
    head = [Text(f"{row.name}  {row.state}" + (f": {row.why}" if row.why else ""), style="bold")]
    faring = described(row.vitals) if row.vitals else ""
    ends = f"its certificate ends {shown(row.certificate_ends)}" if row.certificate_ends else ""
    trouble = trouble_with(row, now)
    data = f"{trouble.text} (since {shown(trouble.since)})" if trouble else ""
    head += [Text(line) for line in (seen, data, about, counts, faring, ends) if line]
    answers = _table("round", "when", "took", "ms/step", "its cohort", "")
    for turn in story.turns[-20:]:
        answers.add_row(*map(Text, _turn(turn, usual)))
    events = [Text(f"{shown(at)}  {text}") for at, text in story.story[-20:]]
    if story.turns:
        return Group(*head, Text(""), answers, Text(""), *events)
    return Group(*head, Text(""), *events)


def _turn(turn: AnswerTime, usual: dict[int, float]) -> tuple[str, ...]:
    took, pace = _seconds(turn.took), _milli(turn.seconds_per_step)
    return str(turn.round), shown(turn.at), took, pace, _seconds(usual.get(turn.round)), "late" if turn.late else ""


def _away(row: DeviceRow, now: float) -> str:
    why = f": {row.why}" if row.why else ""
    what = row.why if row.state == "barred" else f"{row.state}{why}"
    return what + (f", since {ago(now - row.since)}".replace(" ago", "") if row.since else "")


def _table(*titles: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for title in titles:
        table.add_column(title, overflow="fold")
    return table


def often(count: int) -> str:
    """Return how often something happened, in words."""
    return "once" if count == 1 else f"{count} times"


def _short(text: str) -> str:
    return text if len(text) <= LONG else f"{text[: LONG - 1]}…"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"


def _milli(value: float | None) -> str:
    return "-" if value is None else f"{1000 * value:.1f}"
