"""The parts of a report, in the order in which they are read."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from edgefl.learn.evaluation import figures as judging
from edgefl.learn.evaluation import wording
from edgefl.learn.evaluation.wording import size
from edgefl.system.moments import shown
from edgefl.watch.overview.answer_times import Pace
from edgefl.watch.overview.rows import RoundRow, Snapshot
from edgefl.watch.overview.troubles import of_the_run
from edgefl.watch.report import figures
from edgefl.watch.report.contents import Contents
from edgefl.watch.report.html import folded, listing, paragraph, table, tiles

DAYS = 62  # single days in "who was slow"


def head(_: Contents, s: Snapshot) -> str:
    """What it was, how it ended, and the figures that are looked for first."""
    run, last = s.run, s.opinion
    state = run.state if run.state in ("finished", "interrupted") else "not finished"
    fleet = len(of_the_run(s.devices))
    words = f"{run.algorithm}, {state} after {run.rounds_done} of {run.rounds} rounds; {fleet} devices."
    began = f"Began {shown(run.started_at)}" + (f", ended {shown(run.ended_at)}." if run.ended_at else ".")
    pairs: list[tuple[str, str]] = []
    pairs += [(one.title, one.shown) for one in judging.figures(last.scores if last else {})]
    if run.best:
        best = judging.figures({run.best.measure: run.best.value})[0]
        pairs.append((f"best, round {run.best.round}", best.shown))
    pairs += [("sent up", size(run.bytes_up)), ("sent down", size(run.bytes_down)), ("time", _span(run.seconds))]
    if run.restarts:
        pairs.append(("restarts", str(run.restarts)))
    return paragraph(words) + paragraph(began, css="dim") + tiles(pairs)


def curves(_: Contents, s: Snapshot) -> str:
    """How good the model became."""
    weakest = wording.weakest(s.opinion, s.run.evaluating.names if s.run.evaluating else None) if s.opinion else ""
    judged = f"The run {wording.evaluating(s.run.evaluating)}." if s.run.evaluating else ""
    words = " ".join(word for word in (judged, f"At the end: {weakest}." if weakest else "") if word)
    told = paragraph(words, css="dim") if words else ""
    return told + figures.quality(s) + folded("Every round", _rounds(s))


def _rounds(s: Snapshot) -> str:
    """All figures, as in metrics.jsonl."""
    names = list(next((row.opinion.scores for row in s.rounds if row.opinion), ()))
    titles = ["round", "when", *map(judging.title_of, names), "on devices", "devices", "late", "refused", "missing"]
    titles += ["slowest", "up", "down", "seconds", "waited"]
    places = len(names)
    return table(titles, (_round(row, names) for row in s.rounds), left=(1, 7 + places), words=(6 + places,))


def _round(row: RoundRow, names: Sequence[str]) -> tuple[object, ...]:
    slowest = f"{row.slowest.device}, {row.slowest.took:.1f} s" if row.slowest else "-"
    judged = [one.shown for one in judging.figures({name: row.scores.get(name) for name in names})]
    by_devices = judging.chief(row.evaluated.scores) if row.evaluated else None
    scores = *judged, by_devices.shown if by_devices else "-"
    counts = row.devices, row.late, row.refused, _names(row.missing), slowest
    sent = size(row.bytes_up), size(row.bytes_down), f"{row.seconds:.2f}", f"{row.waiting_seconds:.2f}"
    return row.round, shown(row.at), *scores, *counts, *sent


def fleet(_: Contents, s: Snapshot) -> str:
    """Every device that took part: what it is and how it stands, then what it did."""
    if not s.devices:
        return paragraph("No device was ever there.")
    about = (
        (
            row.name,
            f"{row.state}: {row.why}" if row.why else row.state,
            shown(row.last_seen),
            *(", ".join(word for word in (row.host, row.back_end) if word) or "-", row.version or "-"),
            shown(row.certificate_ends),
        )
        for row in s.devices
    )
    work = (
        (
            *(row.name, row.samples, row.answers, row.late, row.missed, row.declined, row.strikes),
            *("-" if row.seconds_per_step is None else f"{1000 * row.seconds_per_step:.1f}", size(row.bytes_up)),
        )
        for row in s.devices
    )
    titles = ["device", "state", "last seen", "machine", "version", "certificate ends"]
    done = ["device", "samples", "answers", "late", "missed", "declined", "refused", "ms/step", "sent"]
    # Two tables: one with all of it would be wider than a page.
    return table(titles, about, words=range(len(titles))) + table(done, work)


def slow(c: Contents, s: Snapshot) -> str:
    """Who was slow, over the whole run and on each of its days."""
    paces = c.overview.slow()
    if not paces:
        return paragraph("No device was asked.")
    guilty = [one.device for one in paces if one.slow]
    why = "Late, missing, twice as slow as those asked with it, or waited for by several rounds"
    words = f"{why}: {_names(guilty)}." if guilty else "No device."
    days = list(_days(c, s))
    told = folded("On each day", table(["day", "slow devices"], days, words=(1,))) if days else ""
    return paragraph(words) + _paces(paces) + told + figures.side_by_side(figures.times(s))


def _paces(paces: list[Pace]) -> str:
    titles = [
        "device",
        "answers",
        "late",
        "missed",
        "median",
        "slowest",
        "in round",
        "ms/step",
        "times its cohort",
        "waited for",
    ]
    rows = (
        (
            *(one.device, one.answers, one.late, one.missed, _seconds(one.median_took), _seconds(one.slowest_took)),
            one.slowest_round or "-",
            "-" if one.seconds_per_step is None else f"{1000 * one.seconds_per_step:.1f}",
            "-" if one.times_cohort is None else f"{one.times_cohort:.1f}",
            f"{one.held_up} rounds" if one.held_up else "-",
        )
        for one in paces
    )
    return table(titles, rows)


def _days(c: Contents, s: Snapshot) -> Iterator[tuple[str, str]]:
    """Each day on which a round was merged, and who was slow on it; the last ones."""
    dates = sorted({datetime.fromtimestamp(row.at).astimezone().date() for row in s.rounds if row.at})
    for date in dates[-DAYS:]:
        start = datetime(date.year, date.month, date.day).astimezone()
        end = datetime.combine(date + timedelta(days=1), datetime.min.time()).astimezone()
        guilty = [one for one in c.overview.slow(start.timestamp(), end.timestamp()) if one.slow]
        yield f"{date:%A %Y-%m-%d}", "; ".join(_offence(one) for one in guilty) or "no device"


def _offence(one: Pace) -> str:
    reasons = [f"{one.missed} missed" if one.missed else "", f"{one.late} late" if one.late else ""]
    reasons.append(f"{one.held_up} rounds waited for it" if one.held_up else "")
    if one.times_cohort is not None:
        reasons.append(f"{one.times_cohort:.1f} times its cohort")
    return f"{one.device} ({', '.join(reason for reason in reasons if reason)})"


def traffic(_: Contents, s: Snapshot) -> str:
    """What was sent."""
    run = s.run
    rounds = max(1, len(s.rounds))
    each = f"{size(run.bytes_up)} up and {size(run.bytes_down)} down in {len(s.rounds)} rounds: "
    each += f"{size(run.bytes_up / rounds)} and {size(run.bytes_down / rounds)} a round, frames of models and answers."
    return paragraph(each) + figures.side_by_side(figures.traffic(s))


def privacy(c: Contents, s: Snapshot) -> str:
    """What was spent, as far as it is known outside of the devices."""
    if s.run.done and s.run.done.privacy:
        return paragraph(wording.spent(s.run.done))
    if not c.private:
        return paragraph("The run promises no differential privacy: it has no [privacy] section.")
    own = "Each device keeps the exact bill: it also counts what it computed and could not send."
    if c.unknown:
        return paragraph(f"What was spent is not known here: {c.unknown}. {own}")
    if c.spent is None:
        return paragraph(f"No private answer arrived. {own}")
    cost = (
        "nothing is promised"
        if c.spent.epsilon is None
        else f"epsilon {c.spent.epsilon:.4g} at delta {c.spent.delta:g}"
    )
    words = (
        f"{c.spent.mechanism} perturbation; the {c.spent.updates} answers of {c.spent.device}, the most of all: {cost}."
    )
    return paragraph(f"{words} {own}")


def faults(_: Contents, s: Snapshot) -> str:
    """What went wrong, and what became of it."""
    troubled = [row for row in s.rounds if row.missing or row.declined or row.extended or row.abandoned or row.bounded]
    titles = ["round", "when", "extended", "given up", "missing", "declined", "bounded"]
    rounds = (
        (
            *(row.round, shown(row.at), row.extended, row.abandoned, _names(row.missing)),
            "; ".join(f"{name}: {why}" for name, why in row.declined.items()) or "-",
            _names(tuple(row.bounded)),
        )
        for row in troubled
    )
    notes = [
        (shown(note.at), note.text, f"{note.times} times, since {shown(note.first_at)}" if note.times > 1 else "")
        for note in s.notes
    ]
    parts = [table(titles, rounds, left=(1,), words=(4, 5, 6))] if troubled else []
    parts += [table(["when", "what", ""], notes, words=(1, 2))] if notes else []
    return "".join(parts) or paragraph("Nothing went wrong.")


def what(c: Contents, s: Snapshot) -> str:
    """The run file, the data, the versions: all that the model depends on."""
    run = s.run
    changes = [(shown(one.at), one.key, one.before, one.now) for one in run.changes]
    software = [(name, version) for name, version in c.software.items()]
    versions = sorted({row.version for row in s.devices if row.version})
    software += [("edgefl on devices", ", ".join(versions))] if versions else []
    data = [
        ("run", f"{run.name}, id {run.run_id}"),
        ("seed", "-" if c.seed is None else c.seed),
        ("judged by", wording.evaluating(run.evaluating) if run.evaluating else "-"),
        ("samples on devices", f"{sum(row.samples for row in s.devices)} on {len(of_the_run(s.devices))} devices"),
        *([("begins with", wording.inherited(run.inherited))] if run.inherited else []),
        ("model", run.done.model_sha256 if run.done else "-"),
        *software,
    ]
    parts = [table(["", ""], data, words=(1,))]
    if changes:
        parts.append(table(["when", "changed", "from", "to"], changes, left=(0, 1), words=(2, 3)))
    return "".join(parts) + folded("The run file, and who set what", listing(c.file))


def again(c: Contents, s: Snapshot) -> str:
    """The commands that play it again, or look closer."""
    name = s.run.name
    lines = [("# the run file above, saved as run.toml (what stands behind # is not needed)", "dim")]
    if c.partitioned:
        lines += [
            ("edgefl simulate run.toml", ""),
            ("# on one machine, without a network: the same seed, the same rounds", "dim"),
        ]
    lines += [
        ("edgefl rehearse run.toml", ""),
        (f"edgefl coordinator start run.toml --set run.name={name}-again", ""),
        ("edgefl agent start", ""),
        ("# on each device; with devices of the same names and data, in the same rounds, it is the same model", "dim"),
        ("", ""),
        (f"edgefl replay {c.folder}", ""),
        (f"edgefl status {c.folder} --slow", ""),
        (f"edgefl page {c.folder}", ""),
    ]
    files = table(["file", ""], list(c.files.items()), words=(1,)) if c.files else ""
    return listing(lines) + files


def _names(names: object) -> str:
    some = list(names) if isinstance(names, tuple | list) else []
    more = f" and {len(some) - 10} more" if len(some) > 10 else ""
    return f"{', '.join(map(str, some[:10]))}{more}" or "-"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"


def _span(seconds: float) -> str:
    return (
        f"{seconds:.1f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )


ALL = {
    "": head,
    "How good the model became": curves,
    "The fleet": fleet,
    "Slow devices": slow,
    "Traffic": traffic,
    "Privacy": privacy,
    "Faults": faults,
    "What was run": what,
    "Play it again": again,
}
