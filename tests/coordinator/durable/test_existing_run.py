"""An unfinished run is gone on with as long as nothing has changed that its model depends on."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from coordinator.decide.rounds import DeviceAnswered, DeviceJoined, Invite, Rounds, RunResumed, step
from coordinator.durable.existing_run import settle, unfinished
from coordinator.durable.journal import Journal
from coordinator.durable.resuming import RequestedRounds, changes, rounds_in_force
from coordinator.durable.starting_point import rules
from edgefl.base.errors import ConfigError, Finished
from edgefl.base.events import Changed, as_json
from edgefl.cli.app import app
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.learn.data.files import contents
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
    book, state = Journal(FolderDisk(folder)), Rounds(rules(a_run()))
    for event in (DeviceJoined("a", 0.0), DeviceJoined("b", 0.0), DeviceAnswered("a", 1, 1.0)):
        state = step(state, event)[0]
        book.write((event,), state)
    book.close()
    settle(folder, a_run(wire={"codec": "float16"}), fresh=False)
    book = Journal(FolderDisk(folder))
    resumed, actions = step(book.rounds(state.rules), RunResumed(2.0))
    book.close()
    assert isinstance(actions[0], Invite)
    assert set(actions[0].devices) == {"a", "b"}
    assert resumed.opening > state.opening, "devices that have answered are asked again"


def ended(tmp_path: Path) -> Path:
    """The file of a run that has finished."""
    file = tmp_path / "run.toml"
    file.write_text(f'[run]\nname = "night"\nfolder = "{tmp_path}"\n[rounds]\ncohort = 2\n')
    folder = begun(tmp_path / "night")
    assert unfinished(folder, a_run(run={"name": "night", "folder": str(tmp_path)}))
    book = Journal(FolderDisk(folder))
    book.set(done="yes")
    book.close()
    return file


@pytest.mark.parametrize(("flags", "code"), [([], 3), (["--unless-finished"], 0)])
def test_a_finished_run_is_left_alone_and_what_can_be_done_is_said_in_one_line(
    flags: list[str], code: int, tmp_path: Path
):
    result = CliRunner().invoke(app, ["coordinator", "start", str(ended(tmp_path)), *flags])
    said = str(result.exception) if code else result.output.strip()
    assert getattr(result.exception, "exit_code", result.exit_code) == code
    assert "\n" not in said
    assert said.removeprefix("edgefl: ") == (
        f"run 'night' has finished and is left alone: `edgefl coordinator extend {tmp_path / 'night'} --rounds 20`"
        " goes on with it, run.from = 'night' begins another run with its model, --fresh begins it anew"
    )
    assert [path.name for path in tmp_path.glob("night*")] == ["night"]


def test_nobody_else_trains_it_again_either(tmp_path: Path):
    ended(tmp_path)
    with pytest.raises(Finished):
        settle(tmp_path / "night", a_run(run={"name": "night"}))
    settle(tmp_path / "night", a_run(run={"name": "night"}), fresh=True)
    assert sorted(path.name for path in tmp_path.glob("night*")) == ["night", "night~1"]


@pytest.mark.parametrize(
    ("known", "before", "now", "rounds"),
    [
        (20, RequestedRounds(20), RequestedRounds(20), 20),
        (20, RequestedRounds(20), RequestedRounds(30), 30),  # the file was changed
        (40, RequestedRounds(20), RequestedRounds(20), 40),  # extended; the file was not
        (40, RequestedRounds(20), RequestedRounds(30), 30),  # and now it was
        (50, RequestedRounds(20, 50), RequestedRounds(20), 50),  # begun with a flag, which need not be given again
        (50, RequestedRounds(20, 50), RequestedRounds(25), 25),
        (70, RequestedRounds(20, 50), RequestedRounds(20, 50), 70),  # a unit whose variable says the same at each start
        (70, RequestedRounds(20, 50), RequestedRounds(20, 60), 60),
        (40, RequestedRounds(20), RequestedRounds(20, 20), 20),  # said on purpose
    ],
)
def test_a_run_keeps_its_number_of_rounds_until_somebody_says_another(
    known: int, before: RequestedRounds, now: RequestedRounds, rounds: int
):
    assert rounds_in_force(known, before, now) == rounds


def test_what_file_flags_and_environment_say_is_told_apart(tmp_path: Path):
    file = tmp_path / "run.toml"
    file.write_text("[run]\nrounds = 7\n")
    assert RequestedRounds.of(file, environment={}) == RequestedRounds(7)
    assert RequestedRounds.of(file, ["run.rounds=9"], {"EDGEFL_RUN__ROUNDS": "8"}) == RequestedRounds(7, 9)
    assert RequestedRounds.of(file, environment={"EDGEFL_RUN__ROUNDS": "8"}) == RequestedRounds(7, 8)
    file.write_text("")
    assert RequestedRounds.of(file, environment={}) == RequestedRounds(20)


def test_a_flag_of_the_first_start_is_remembered(tmp_path: Path):
    run, folder = a_run(run={"rounds": 50}), tmp_path / "run"
    settle(folder, run, stated=RequestedRounds(20, 50))
    Journal(FolderDisk(folder)).set(run_id="1", run=run.model_dump_json())
    assert settle(folder, a_run(), stated=RequestedRounds(20)).run.rounds == 50
    assert story(folder) == []
    assert settle(folder, a_run(run={"rounds": 30}), stated=RequestedRounds(30)).run.rounds == 30
    assert settle(folder, a_run(run={"rounds": 30}), stated=RequestedRounds(30)).run.rounds == 30


@pytest.mark.parametrize(
    ("name", "words"),
    [("nothing", "neither a run file nor the folder of a run"), ("night~1", "was moved aside when run 'night' began")],
)
def test_what_cannot_be_extended_says_why(name: str, words: str, tmp_path: Path):
    settled = ended(tmp_path)
    (tmp_path / "night").rename(tmp_path / "night~1")
    Journal(FolderDisk(tmp_path / "night~1")).set(run=a_run(run={"name": "night"}).model_dump_json())
    result = CliRunner().invoke(app, ["coordinator", "extend", str(settled.parent / name), "--rounds", "2"])
    assert isinstance(result.exception, ConfigError)
    assert words in str(result.exception)


def with_data(folder: Path, file: Path, rows: str = "a,label\n1,0\n2,1\n") -> RunFile:
    """A run that was begun in the folder, on a table."""
    file.parent.mkdir(exist_ok=True)
    file.write_text(rows)
    run = a_run(task={"data": f"csv:{file}"})
    settle(folder, run)
    book = Journal(FolderDisk(folder))
    if book.get("run") is None:
        book.set(run=run.model_dump_json())
    book.close()
    return run


def test_data_that_were_moved_are_the_same_data(tmp_path: Path):
    before, now = tmp_path / "server" / "check.csv", tmp_path / "server2" / "again.csv"
    with_data(tmp_path / "run", before)
    before.unlink()
    with_data(tmp_path / "run", now)
    told = [("task.data", f"csv:{before}", f"csv:{now}")]
    assert [(one["key"], one["before"], one["now"]) for one in story(tmp_path / "run")] == told
    with_data(tmp_path / "run", now)
    assert len(story(tmp_path / "run")) == 1


def test_other_data_in_another_place_are_another_run(tmp_path: Path):
    with_data(tmp_path / "run", tmp_path / "server" / "check.csv")
    with pytest.raises(ConfigError, match=r"task.data was csv:.*, is csv:.*, with other contents\): change it back"):
        with_data(tmp_path / "run", tmp_path / "server2" / "check.csv", "a,label\n1,1\n2,1\n")


def test_data_that_were_written_to_are_told(tmp_path: Path):
    file = tmp_path / "check.csv"
    with_data(tmp_path / "run", file)
    with_data(tmp_path / "run", file, "a,label\n1,0\n2,1\n3,1\n")
    assert [one["key"] for one in story(tmp_path / "run")] == ["contents of task.data"]
    with_data(tmp_path / "run", file, "a,label\n1,0\n2,1\n3,1\n")
    assert len(story(tmp_path / "run")) == 1


def test_the_data_of_an_earlier_version_s_run_are_compared_where_both_are_there(tmp_path: Path):
    before, now = tmp_path / "server" / "check.csv", tmp_path / "server2" / "check.csv"
    run = with_data(tmp_path / "other", before)
    folder = tmp_path / "run"
    folder.mkdir()
    book = Journal(FolderDisk(folder))
    book.set(run=run.model_dump_json())
    book.close()
    with_data(folder, now)
    assert [one["key"] for one in story(folder)] == ["task.data"]
    now.unlink()
    with_data(folder, before)


def test_a_folder_of_images_is_known_by_what_is_in_it(tmp_path: Path):
    def folder(name: str, cats: str) -> str:
        for kind, picture in (("cat", cats), ("dog", "b")):
            (tmp_path / name / kind).mkdir(parents=True)
            (tmp_path / name / kind / "1.png").write_text(picture)
        return f"images:{tmp_path / name}"

    same, moved, other = folder("one", "a"), folder("two", "a"), folder("three", "c")
    assert contents(same) == contents(moved) != contents(other)
    assert contents("digits") is contents("images:/nowhere") is contents("npz:/nowhere.npz") is None
