"""A fleet that never was, for the page: as many devices and runs as a test wants, the same ones each time."""

import json
import time
from dataclasses import replace

from coordinator.durable.journal import Journal
from edgefl.base import events
from edgefl.base.events import as_record
from edgefl.server.decide.runs import RunSchedule
from edgefl.server.decide.vocabulary import Recurring, Submission
from edgefl.system.disk import FolderDisk
from edgefl.watch.metrics_file import MetricsFile

BEGIN = 1_767_225_600.0
SITES, CAMERAS = ("north", "south", "harbour", "field station", "roof"), ("v2", "v3", "none")
DAY = 86_400.0


def devices(count, now=None):
    """The facts of a fleet: most devices are there; some are away, without data, hot, or at the end of their time."""
    now = time.time() if now is None else now
    names = [f"pi-{i:04d}" for i in range(count)]
    yield events.Enrolled(tuple(names), at=now - 30 * DAY)
    for i, name in enumerate(names):
        at = now - 3600 * (i % 7) - i
        if i % 61 == 60:
            continue  # it never came
        yield events.Joined(name, 100 + i % 437, f"host-{i}.local", f"0.{1 + i % 3}.0", "onnx 1.19", at=at)
        yield events.Certificate(name, now + (3 if i % 190 == 7 else 200) * DAY, at=at)
        if i % 3 == 0:
            yield events.Vitals(name, temperature=84.0 if i % 201 == 0 else 45.0 + i % 20, memory_free=4 * 10**8, at=at)
        if i % 83 == 11:
            yield events.DataBroken(name, "data/sensors.csv: column 'y' is not there", at=at + 60)
        elif i % 17 == 5:
            yield events.Lost(name, "the broker has lost it", at=at + 100)
        elif i % 401 == 100:
            yield events.Refused(name, "device.key", "its key is another one", True, at=at)


def label_all(feed):
    """Give each device of a feed the labels that an operator might."""
    names = feed.look(lambda overview: list(overview.devices))
    labels = {
        name: {"site": SITES[i % 7 % 5], "camera": CAMERAS[i % 3], "floor": str(i % 4)} for i, name in enumerate(names)
    }
    feed.tell(events.Labelled(labels, at=1.0))


def runs(around, count, fleet="north"):
    """Runs in every phase, as a server has them after some weeks; two work."""
    server, now = around.machine.server, time.time()
    for place in range(count):
        name = ("night", "sensors", "gestures")[place % 3] + f"-{1 + place // 3}"
        text = f'[run]\nname = "{name}"\nrounds = 60\n[broker]\nfleet = "{fleet}"\n[rounds]\ncohort = 8\n'
        by = f"ann-{place % 2}"
        submission = Submission(name, fleet, text, (), "", str(around.folder / "runs"), place % 3 == 2)
        around.ask(lambda server, one=submission, who=by: server.submit(one.name, one, who))
    phases = ["finished"] * (count - 12) + ["failed"] + ["cancelled"] + ["queued"] * 7 + ["paused"] + ["working"] * 2
    known = {}
    for (name, run), phase in zip(server.state.runs.items(), phases, strict=True):
        age = (count - run.number) * DAY / 2
        over = phase in ("finished", "failed", "cancelled")
        known[name] = replace(
            run,
            phase=phase,
            submitted=now - age - 3000,
            started=None if phase == "queued" else now - age - 2000,
            ended=now - age if over else None,
            schedule="night" if name.startswith("night") else "",
            reason="the broker refused its certificate" if phase == "failed" else "",
        )
        if phase == "working":
            write_rounds(around.folder / "runs" / name, 13 + run.number)
    nightly = Submission(
        "night", fleet, "", recurring=Recurring("0 2 * * *", "Europe/Berlin", when="new_samples >= 500")
    )
    weekly = Submission("weekly", fleet, "", recurring=Recurring("30 4 * * 1", "Europe/Berlin"))
    schedules = {
        "night": RunSchedule("night", nightly, "ann", now - DAY, 9),
        "weekly": RunSchedule("weekly", weekly, "ann", now - DAY, 0, paused=True),
    }
    server.state = replace(server.state, runs=known, schedules=schedules)
    around.queue.changed()


def write_rounds(folder, count):
    """What a coordinator has written of its rounds."""
    folder.mkdir(parents=True, exist_ok=True)
    rounds = (
        events.Round(
            one, scores={"accuracy": 1 - 1 / (one + 1), "loss": 1 / one}, devices=8, seconds=3.0, at=BEGIN + one
        )
        for one in range(1, count + 1)
    )
    (folder / "metrics.jsonl").write_text("".join(json.dumps(as_record(fact)) + "\n" for fact in rounds))


def written_run(folder):
    """A folder in which a coordinator has kept a run's journal and figures, and ended."""
    disk = FolderDisk(folder)
    facts = events.Joined("pi-0001", 9, at=BEGIN), events.Round(1, scores={"accuracy": 0.5}, devices=1, at=BEGIN + 3)
    book, metrics = Journal(disk), MetricsFile(disk)
    book.note(*facts)
    for fact in facts:
        metrics(fact)
    book.close()
