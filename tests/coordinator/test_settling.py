"""An unfinished run is gone on with as long as nothing has changed that its model depends on."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from coordinator.beginning import rules
from coordinator.journal import Journal
from coordinator.resuming import changes
from coordinator.rounds import Answered, Invite, Joined, Resumed, Rounds, step
from coordinator.start import finished, settle
from edgefl.cli.app import app
from edgefl.config.reader import parse
from edgefl.config.schema import RunFile
from edgefl.errors import ConfigError
from edgefl.events import Changed, as_json
from edgefl.system.disk import FolderDisk


def a_run(**more: Any) -> RunFile:
    return parse(RunFile, {"rounds": {"cohort": 2}, **more}, "test", environment={})


def begun(folder: Path) -> Path:
    """A folder in which a run was interrupted."""
    folder.mkdir()
    book = Journal(FolderDisk(folder))
    book.set(run=a_run().model_dump_json())
    book.close()
    return folder


def story(folder: Path) -> list[dict[str, Any]]:
    book = Journal(FolderDisk(folder))
    told = [as_json(fact) for fact in book.story() if isinstance(fact, Changed)]
    book.close()
    return told


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"run": {"rounds": 99}}, ("run.rounds", 20, 99)),
        ({"run": {"target_accuracy": 0.9}}, ("run.target_accuracy", None, 0.9)),
        ({"run": {"target_loss": 0.1}}, ("run.target_loss", None, 0.1)),
        ({"run": {"forgetting": True}}, ("run.forgetting", False, True)),
        ({"run": {"folder": "elsewhere"}}, ("run.folder", "runs", "elsewhere")),
        ({"rounds": {"cohort": 2, "quorum": 1}}, ("rounds.quorum", None, 1)),
        ({"rounds": {"cohort": 2, "deadline": 5.0}}, ("rounds.deadline", 60.0, 5.0)),
        ({"rounds": {"cohort": 2, "start_with": 2}}, ("rounds.start_with", None, 2)),
        ({"rounds": {"cohort": 2, "over_select": 1.5}}, ("rounds.over_select", 1.0, 1.5)),
        ({"guards": {"strikes": 9}}, ("guards.strikes", 3, 9)),
        ({"broker": {"url": "mqtt://me:secret@host"}}, ("broker.url", "embedded", "mqtt://me@host:1883")),
        ({"wire": {"codec": "float16"}}, ("wire.codec", "float32", "float16")),
        ({"wire": {"up": {"codec": "int8"}}}, ("wire.up", None, {"codec": "int8"})),
    ],
)
def test_what_the_model_does_not_depend_on_may_change_and_is_written_down(
    change: dict[str, Any], told: tuple[Any, ...], tmp_path: Path
):
    folder = begun(tmp_path / "run")
    settle(folder, a_run(**change), fresh=False)
    assert [(one["key"], one["before"], one["now"]) for one in story(folder)] == [told]
    settle(folder, a_run(**change), fresh=False)
    assert len(story(folder)) == 1, "from now on this is what it was"


def test_whom_rounds_ask_is_a_thing_the_model_depends_on(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"selection.name was uniform, is fresh"):
        settle(begun(tmp_path / "run"), a_run(selection={"name": "fresh"}), fresh=False)


def test_a_run_of_an_earlier_version_asked_by_the_seed():
    now = a_run().model_dump(mode="json")
    before = {section: table for section, table in now.items() if section != "selection"}
    assert changes(before, now) == []


def test_all_that_it_depends_on_is_named_at_once(tmp_path: Path):
    other = a_run(run={"seed": 1, "rounds": 5}, algorithm={"name": "fedprox", "mu": 1.0}, rounds={"cohort": 3})
    with pytest.raises(ConfigError) as refused:
        settle(begun(tmp_path / "run"), other, fresh=False)
    assert (
        "algorithm.mu was None, is 1.0; algorithm.name was fedavg, is fedprox; rounds.cohort was 2, is 3;"
        " run.seed was 0, is 1): change it back and go on, or begin anew with --fresh"
    ) in str(refused.value)
    assert story(tmp_path / "run") == []


def test_a_round_in_hand_is_asked_anew_when_its_model_travels_otherwise(tmp_path: Path):
    folder = begun(tmp_path / "run")
    book, state = Journal(FolderDisk(folder)), Rounds(rules(a_run(), 1))
    for event in (Joined("a", 0.0), Joined("b", 0.0), Answered("a", 1, 1.0)):
        state = step(state, event)[0]
        book.write((event,), state)
    book.close()
    settle(folder, a_run(wire={"codec": "float16"}), fresh=False)
    book = Journal(FolderDisk(folder))
    resumed, actions = step(book.rounds(state.rules), Resumed(2.0))
    book.close()
    assert isinstance(actions[0], Invite)
    assert set(actions[0].devices) == {"a", "b"}
    assert resumed.opening > state.opening, "devices that have answered are asked again"


def test_a_service_leaves_a_finished_run_alone(tmp_path: Path):
    file = tmp_path / "run.toml"
    file.write_text(f'[run]\nname = "night"\nfolder = "{tmp_path}"\n[rounds]\ncohort = 2\n')
    folder = begun(tmp_path / "night")
    assert not finished(a_run(run={"name": "night", "folder": str(tmp_path)}))
    book = Journal(FolderDisk(folder))
    book.set(done="yes")
    book.close()
    result = CliRunner().invoke(app, ["coordinator", "start", str(file), "--unless-finished"])
    assert (result.exit_code, result.output.strip()) == (
        0,
        "edgefl: run 'night' has finished; --fresh begins it anew",
    )
    assert [path.name for path in tmp_path.glob("night*")] == ["night"]
