"""What runs tell alerts: read from a real run's folder, each time only what is new."""

import json
from contextlib import closing

from coordinator.durable.journal import Journal
from edgefl.base.events import Evaluated, Round
from edgefl.server.run_stories import RunStories
from edgefl.server.shell.alerts import RunPlace
from edgefl.system.disk import FolderDisk

RUN = {
    "run": {"name": "a", "rounds": 3},
    "broker": {"url": "mqtt://b:1883"},
    "algorithm": {"name": "fedavg"},
    "rounds": {"deadline": 60.0},
}


def evaluated(round, at, **accuracies):
    own = {device: {"accuracy": accuracy, "samples": 9} for device, accuracy in accuracies.items()}
    return Evaluated(round, {"accuracy": 0.5}, per_device=own, at=at)


def test_closed_rounds_and_accuracies_of_devices_are_read_once(tmp_path):
    place = RunPlace("a", "north", "night", str(tmp_path))
    stories = RunStories(tmp_path)
    with closing(Journal(FolderDisk(tmp_path / "a"))) as book:
        book.set(run=json.dumps(RUN), run_id="1f2e")
        book.note(Round(1, {"accuracy": 0.5}, at=10.0), evaluated(1, 11.0, d1=0.75))
    (story,) = stories.look((place,)).stories
    assert (story.moved, [one.scores for one in story.scored]) == (10.0, [{"d1": 0.75}])
    assert (story.scored[0].series, story.scored[0].run, story.scored[0].round) == ("night", "a", 1)
    (story,) = stories.look((place,)).stories
    assert (story.moved, story.scored) == (10.0, ())
    with closing(Journal(FolderDisk(tmp_path / "a"))) as book:
        book.note(Round(2, {"accuracy": 0.5}, at=20.0), evaluated(2, 21.0, d1=0.5))
    (story,) = stories.look((place,)).stories
    assert (story.moved, [one.scores for one in story.scored]) == (20.0, [{"d1": 0.5}])


def test_a_run_without_a_folder_has_no_story_yet(tmp_path):
    looked = RunStories(tmp_path).look((RunPlace("a", "north", "a", str(tmp_path)),))
    assert (looked.stories[0].moved, looked.stories[0].scored) == (0.0, ())
    assert looked.free is not None
    assert looked.free > 0
