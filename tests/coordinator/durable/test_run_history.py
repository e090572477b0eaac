"""A run's folder tells again what happened, also after a crash between its two files."""

import json
from contextlib import closing

import pytest

from coordinator.durable.journal import Journal
from coordinator.durable.run_history import Follower, complete_metrics, facts, overview, run_disk
from coordinator.durable.segments import SEGMENTS
from edgefl.base import events
from edgefl.base.errors import ConfigError
from edgefl.base.events import Done, Round, as_json
from edgefl.system.disk import FolderDisk
from edgefl.watch.metrics_file import METRICS, MetricsFile, reports
from edgefl.watch.overview.snapshot import plain

RUN = {
    "run": {"name": "sensors", "rounds": 3},
    "broker": {"url": "mqtt://user:secret@b:1883"},
    "algorithm": {"name": "fedgc"},
    "rounds": {"deadline": 60.0},
}
STORY = [
    events.Joined("a", at=1.0),
    events.Asked(1, 1, ("a",), 9, at=2.0),
    events.Answered("a", 1, 500, took=1.0, at=3.0),
    events.Closed(1, ("a",), at=3.5),
    Round(1, scores={"accuracy": 0.5}, bytes_up=500, seconds=2.0, at=4.0),
    events.Asked(2, 2, ("a",), 9, at=5.0),
    events.Closed(2, ("a",), at=6.0),
    Round(2, scores={"accuracy": 0.7}, bytes_up=400, seconds=2.0, at=7.0),
    Done("sensors", "fedgc", 2, at=8.0),
]


def folder(path, story, reports):
    disk = FolderDisk(path)
    with closing(Journal(disk)) as book:
        book.set(run=json.dumps(RUN), run_id="1f2e")
        book.note(*story)
    metrics = MetricsFile(disk)
    for report in reports:
        metrics(report)
    return disk


def without(*rounds):
    return [fact for fact in STORY if not (isinstance(fact, Round) and fact.round in rounds)]


@pytest.mark.parametrize(
    ("story", "reports"),
    [
        (STORY, STORY),
        (without(1), STORY),  # the coordinator was killed after it wrote the metrics
        (without(1, 2), STORY),
        (STORY, without(2)),  # or before
        (STORY, []),
    ],
)
def test_whatever_a_crash_left_out_every_round_is_told_once_and_in_its_place(tmp_path, story, reports):
    disk = folder(tmp_path, story, reports)
    started, *rest = facts(disk)
    assert started == events.Started("sensors", "1f2e", "mqtt://user@b:1883", "", "fedgc", 3, 60.0, at=1.0)
    assert rest == STORY


def test_the_figures_are_those_of_the_metrics(tmp_path):
    told_first = Round(1, scores={"accuracy": 0.5}, bytes_up=500, seconds=1.5, at=3.9)
    disk = folder(tmp_path, STORY, [told_first, *STORY])
    rows = overview(disk).rounds
    lines = [json.loads(line) for line in (tmp_path / METRICS).read_text().splitlines()]
    assert lines[0] == {"schema": 2, **json.loads(json.dumps(as_json(told_first)))}
    for line in lines[:-1]:
        shown = plain(rows[line["round"]])
        assert shown | line == {**shown, "event": "round", "schema": 2}


def test_a_folder_without_a_run_is_said_to_be_one(tmp_path):
    with pytest.raises(ConfigError, match="no such journal; name the folder of a run"):
        run_disk(tmp_path)


def test_a_run_that_goes_on_has_in_its_metrics_what_only_its_journal_had(tmp_path):
    disk = folder(tmp_path, STORY, without(2))
    complete_metrics(Journal(disk))(Round(3, at=9.0))
    assert [fact.round for fact in reports(disk) if isinstance(fact, Round)] == [1, 2, 3]


@pytest.mark.parametrize("metrics_first", [False, True])
def test_whoever_follows_a_folder_hears_each_fact_once(tmp_path, metrics_first):
    disk = folder(tmp_path, [], [])
    follower, metrics, book = Follower(disk), MetricsFile(disk), Journal(disk)
    told, anew = follower.look()
    assert (told, anew) == ([events.Started("sensors", "1f2e", "mqtt://user@b:1883", "", "fedgc", 3, 60.0)], True)
    for fact in STORY:
        writes = [lambda fact=fact: book.note(fact), lambda fact=fact: metrics(fact)]
        news = []
        for write in reversed(writes) if metrics_first else writes:
            write()
            more, anew = follower.look()
            assert not anew
            news += more
        assert news == [fact]
    assert follower.look() == ([], False)


def test_whoever_follows_a_folder_hears_another_run_from_its_beginning(tmp_path):
    disk = folder(tmp_path / "run", STORY, STORY)
    follower = Follower(disk)
    follower.look()
    (tmp_path / "run").rename(tmp_path / "run~1")
    folder(tmp_path / "run", STORY[:2], [])
    told, anew = follower.look()
    assert (told[1:], anew) == (STORY[:2], True)


def test_a_run_that_is_half_deleted_is_not_continued_by_the_one_that_takes_its_place(tmp_path):
    disk = folder(tmp_path / "run", STORY, STORY)
    for segment in disk.names(SEGMENTS):
        disk.remove(segment)
    follower = Follower(disk)
    assert follower.look() == ([STORY[4], STORY[7], STORY[8]], True)  # its figures are still there
    (tmp_path / "run").rename(tmp_path / "run~1")
    folder(tmp_path / "run", STORY[:2], [])
    told, anew = follower.look()
    assert (told[1:], anew) == (STORY[:2], True)
