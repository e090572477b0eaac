"""What `edgefl replay` says: in words, who was slow, who declined and why."""

from contextlib import closing
from dataclasses import MISSING, fields

import pytest
from typer.testing import CliRunner

from coordinator.durable.journal import Journal
from edgefl.base import events
from edgefl.base.events import FACTS
from edgefl.cli.app import app
from edgefl.system.disk import FolderDisk
from edgefl.watch.fact_lines import line, log_line
from edgefl.watch.overview.sentences import words


@pytest.mark.parametrize(
    ("fact", "sentence"),
    [
        (
            events.Answered("pi-1", 3, 500, steps=40, took=12.34, seconds_per_step=0.25),
            "pi-1 answered round 3, 12.3 s after it was asked: 40 steps, 250.0 ms a step",
        ),
        (events.Answered("pi-1", 3, 500), "pi-1 answered round 3: 0 steps"),
        (events.Answered("pi-1", 3, 5, "late", "kept by policy"), "pi-1 answered round 3 too late: kept by policy"),
        (
            events.Answered("pi-1", 3, 5, "refused", "too long"),
            "an answer of pi-1 to round 3 cannot be used: too long",
        ),
        (events.Declined("pi-1", 3, "too warm"), "pi-1 declined round 3: too warm"),
        (events.Closed(3, ("a", "b"), ("c",)), "round 3 is closed with the answers of a, b, without c"),
        (events.Closed(3, ("a",), (), ("d",)), "round 3 is closed with the answers of a, and late ones of d"),
        (events.Extended(3, ("c", "d")), "the deadline of round 3 has passed; the round is extended for c, d"),
        (
            events.Lost("a", "no message from it since the coordinator connected"),
            "a is disconnected: no message from it since the coordinator connected",
        ),
        (events.Lost("a"), "a is disconnected"),
        (
            events.Evaluating("digits", 359, 0, None, 0, 2, ("cat", "dog")),
            "the run evaluates on 359 samples of 'digits' in 2 classes (cat, dog)",
        ),
        (
            events.Done("run", "fedavg", 3, model_sha256="0123456789abcdef" * 4),
            "finished after 3 rounds, model 0123456789abcdef",
        ),
    ],
)
def test_it_says_who_was_slow_and_why(fact, sentence):
    assert words(fact) == sentence
    assert line(fact).endswith(sentence)


@pytest.mark.parametrize("kind", FACTS, ids=lambda kind: kind.__name__)
def test_every_fact_can_be_told_and_logged_in_one_line(kind):
    names = {"device", "devices", "missing", "late", "reason", "class_names"}
    fact = kind(**{name: ("x",) if name == "devices" else 1 for name in _required(kind) - names}, **_texts(kind, names))
    assert "\n" not in line(fact)
    assert log_line(fact).startswith(kind.__name__.lower())


def _required(kind):
    return {f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING}


def _texts(kind, names):
    return {name: ("x",) if name in {"devices", "missing", "class_names"} else "x" for name in _required(kind) & names}


@pytest.mark.parametrize(
    ("asked", "notice"),
    [
        ([], ""),
        (["--device", "pi-9"], "edgefl: the journal has nothing about device 'pi-9'\n"),
        (["--device", "pi-1", "--round", "7"], "edgefl: the journal has nothing about device 'pi-1' in round 7\n"),
    ],
)
def test_a_device_nobody_knows_is_no_silence(tmp_path, asked, notice):
    with closing(Journal(FolderDisk(tmp_path))) as book:
        book.note(events.Declined("pi-1", 3, "too warm"))
    result = CliRunner().invoke(app, ["replay", str(tmp_path), *asked])
    assert (result.exit_code, result.stderr) == (0, notice)
