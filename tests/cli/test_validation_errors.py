"""A user's mistake gets one clear line and exit code 2, never a traceback."""

import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from edgefl.cli.app import main
from edgefl.system.locks import own

RUN = """
[run]
name = "t"
rounds = 2
[task]
data = "synthetic"
model = "softmax"
partition = { kind = "iid", devices = 2 }
[algorithm]
name = "fedavg"
"""

Edgefl = Callable[..., tuple[int, str]]


@pytest.fixture
def edgefl(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Edgefl:
    """Run a command in a fresh folder: its exit code and what it said on stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["edgefl", *words])
        with pytest.raises(SystemExit) as end:
            main()
        code = end.value.code
        return (0 if code is None else int(code)), capsys.readouterr().err.strip()

    return run


def write(text: str, name: str = "run.toml") -> str:
    Path(name).write_text(text)
    return name


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (RUN.replace("rounds = 2", "ronds = 2"), ["run.ronds", "did you mean 'rounds'"]),
        (RUN.replace("fedavg", "fedavgg"), ["algorithm.name", "'fedavgg'", "did you mean 'fedavg'"]),
        (RUN + "lerning_rate = 1", ["lerning_rate", "did you mean 'lr'"]),
        (RUN + "lr = -1", ["lr = -1", "greater than 0"]),
        (RUN + "[rounds]\ncohort = 2\nquorum = 3", ["rounds.quorum = 3", "rounds.cohort = 2", "lower it to 2"]),
        (RUN + "[rounds]\ncohort = 5", ["rounds.cohort = 5", "devices = 2", "lower it to 2"]),
        (RUN + "[wire]\ncodec = 'float8'", ["wire.codec", "float8", "did you mean 'float"]),
        (RUN.replace('"softmax"', '"softmox"'), ["softmox", "did you mean 'softmax'"]),
        (RUN.replace('"softmax"', '"lenet5"'), ["lenet5", "20"]),
        (RUN.replace('"synthetic"', '"mnisst"'), ["mnisst", "did you mean 'mnist'"]),
        (RUN.replace('"synthetic"', '"npz:nowhere.npz"'), ["nowhere.npz"]),
        (RUN.replace('name = "t"', 'name = "a/b"'), ["run.name", "a/b", "letters"]),
        (RUN + "[[aggregation]]\nname = 'meen'", ["aggregation.name", "meen", "did you mean 'mean'"]),
        ("[run\n", ["not valid TOML"]),
    ],
)
def test_a_wrong_run_file_is_named_with_key_value_and_remedy(text: str, words: list[str], edgefl: Edgefl) -> None:
    code, error = edgefl("simulate", write(text))
    assert code == 2
    assert error.startswith("edgefl: ")
    assert "\n" not in error
    for word in words:
        assert word in error


def test_a_missing_run_file_points_to_init(edgefl: Edgefl) -> None:
    assert edgefl("simulate", "nowhere.toml") == (
        2,
        "edgefl: nowhere.toml: no such file; `edgefl init` writes a commented one",
    )


def test_a_missing_data_folder_says_where_it_looked(edgefl: Edgefl, tmp_path: Path) -> None:
    code, error = edgefl(
        "simulate", write(RUN.replace('"synthetic"', '"mnist"')), "--data-root", str(tmp_path / "none")
    )
    assert code == 2
    assert str(tmp_path / "none") in error
    assert "--data-root" in error


def test_an_empty_data_set_is_refused(edgefl: Edgefl) -> None:
    Path("empty.csv").write_text("a,b,label\n")
    code, error = edgefl("simulate", write(RUN.replace('"synthetic"', '"csv:empty.csv"')))
    assert code == 2
    assert "empty" in error


def test_devices_with_one_class_each_are_welcome(edgefl: Edgefl) -> None:
    Path("two.csv").write_text("1,0,0\n0,1,1\n" * 20)
    text = RUN.replace('"synthetic"', '"csv:two.csv"').replace('kind = "iid"', 'kind = "classes", per_device = 1')
    assert edgefl("simulate", write(text))[0] == 0


@pytest.mark.parametrize("command", ["coordinator", "agent"])
def test_a_state_folder_in_use_is_told_with_its_owner(command: str, edgefl: Edgefl) -> None:
    if command == "coordinator":
        folder, words = (
            Path("runs/.t"),
            ["coordinator", "start", write(RUN), "--no-rehearse", "--set", "broker.url=embedded"],
        )
    else:
        file = write("[agent]\nid = 'a'\nfolder = 'state'\n", "agent.toml")
        folder, words = Path("state/a"), ["agent", "start", file, "--log", "error"]
    with own(folder):
        code, error = edgefl(*words)
    assert code == 2
    assert f"{folder} is in use by process {os.getpid()}: stop it, or choose another folder" in error


def test_set_must_name_a_section_and_a_key(edgefl: Edgefl) -> None:
    code, error = edgefl("simulate", write(RUN), "--set", "lr=1")
    assert code == 2
    assert "section.key=value" in error


def test_a_broker_that_is_not_there_is_named(edgefl: Edgefl) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"mqtt://127.0.0.1:{taken.getsockname()[1]}"  # bound, but nobody listens
        me = f"[agent]\nid = 'a'\nbroker = '{url}'\nfolder = '.'\nconnect_timeout = 0.5\n"
        file = write(me + "[data]\nsource = 'synthetic'\n", "agent.toml")
        code, error = edgefl("agent", "start", file, "--log", "error")
    assert code == 2
    assert url in error
    assert "not reachable" in error


def test_a_taken_port_is_named(edgefl: Edgefl) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, error = edgefl("broker", "start", "--port", str(port))
    assert code == 2
    assert str(port) in error


def test_a_fleet_needs_a_broker_both_can_reach(edgefl: Edgefl) -> None:
    code, error = edgefl("fleet", "start", write(RUN))
    assert code == 2
    assert "edgefl broker start" in error


def test_init_does_not_overwrite(edgefl: Edgefl) -> None:
    write("precious")
    code, error = edgefl("init")
    assert code == 2
    assert "run.toml is already there" in error
    assert Path("run.toml").read_text() == "precious"


def test_an_agent_with_a_name_no_topic_can_hold_is_told(edgefl: Edgefl) -> None:
    code, error = edgefl("agent", "start", write("[agent]\nid = 'pi/1'\n", "agent.toml"))
    assert code == 2
    assert "agent.id" in error


def test_a_rehearsal_finds_a_stage_whose_needs_are_not_met(edgefl: Edgefl) -> None:
    text = RUN + "[[aggregation]]\nname = 'mean'\n[[aggregation]]\nname = 'distill'\n"
    code, error = edgefl("rehearse", write(text))
    assert code == 2
    assert "distill" in error
