"""No file that the operator did not name chooses code: not a checkpoint, not a journal, not the folder of a run."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from coordinator.durable.existing_run import begun
from coordinator.durable.journal import Journal
from edgefl.base.errors import CodeRefused, ConfigError, RemoteError
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.learn.data import catalog
from edgefl.learn.models.build import build
from edgefl.learn.tasks.form import read
from edgefl.learn.tasks.kinds import checked
from edgefl.system import store, user_code
from edgefl.system.disk import FolderDisk

ROOT = Path(__file__).parents[2]
SOURCES = sorted(
    path for package in ("edgefl", "coordinator", "device_agent", "gateway") for path in (ROOT / package).rglob("*.py")
)
CANARY = "canary"
EVIL = f"open({CANARY!r}, 'w')\ndef run(*_, **__):\n    pass\n"
MINE = """
from typing import Literal

import torch
from pydantic.dataclasses import dataclass

from edgefl.learn.algorithms.fedavg import FedAvg
from edgefl.learn.losses import cross_entropy

def made(wide, classes):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, wide), torch.nn.Linear(wide, classes))

def net(shape, classes):
    return made(16, classes)

def other(shape, classes):
    return made(8, classes)

def loss(z, y):
    return cross_entropy(z, y)

@dataclass(frozen=True)
class Own(FedAvg):
    name: Literal["own"] = "own"
"""
RUN = """
[run]
name = "own"
rounds = 1
[task]
data = "digits"
model = "mine:net"
loss = "mine:loss"
partition = { kind = "iid", devices = 2 }
[algorithm]
name = "mine:Own"
"""


def edgefl(folder: Path, *words: str) -> tuple[int, str, str]:
    """A command in a process of its own: its exit code, stdout and stderr."""
    environment = {name: value for name, value in os.environ.items() if name != user_code.PLACES}
    command = [sys.executable, "-m", "edgefl", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def one_line(error: str) -> str:
    """What a command says when it ends with exit code 2, apart from warnings about the current folder."""
    (line,) = [line for line in error.splitlines() if line.startswith("edgefl: ")]
    assert "Traceback" not in error
    return line


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of zoo and digits that somebody else may have made."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "run.toml").write_text(
        '[run]\nname = "theirs"\nrounds = 1\n[task]\ndata = "digits"\nmodel = "softmax"\n'
        'partition = { kind = "iid", devices = 2 }\n'
    )
    code, _, error = edgefl(folder, "simulate", "run.toml", "--out", "theirs")
    assert code == 0, error
    return folder


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    """A folder that was unpacked, with a module in it that leaves a canary when it is imported."""
    (tmp_path / "evil.py").write_text(EVIL)
    return tmp_path


def forged(trained: Path, folder: Path, changes: Mapping[str, Mapping[str, Any]], **about: Any) -> Path:
    """A checkpoint whose metadata say something else."""
    (source,) = (trained / "theirs").glob("checkpoint-*.safetensors")
    tensors, known = store.load(source)
    run = {section: {**known["run"][section], **table} for section, table in changes.items()}
    (folder / source.name).write_bytes(store.sealed(tensors, {**known, **about, "run": {**known["run"], **run}}))
    return folder / source.name


def test_a_checkpoint_runs_no_program(trained: Path, unpacked: Path) -> None:
    words = ("sh", "-c", f"touch {CANARY}")
    fields = [{"name": word, "shape": [8, 8], "whole": False, "learnt": True} for word in words]
    form = {"kind": "", "inputs": fields, "labels": [], "outputs": []}
    model = {"task": {"model": "subprocess:Popen"}}
    file = forged(trained, unpacked, model, form=form)
    code, _, error = edgefl(unpacked, "export", file.name, "out.onnx")
    assert code == 2
    assert "not the checkpoint" in one_line(error)
    file = forged(trained, unpacked, model)
    code, _, error = edgefl(unpacked, "export", file.name, "out.onnx")
    assert code == 2
    assert "--model package.module:factory" in one_line(error), "and not a command to type that runs it"
    assert "--run run.toml" in one_line(error)
    assert not (unpacked / CANARY).exists()
    assert not (unpacked / "out.onnx").exists()


@pytest.mark.night
@pytest.mark.parametrize("named", [{"data": "evil:run"}, {"loss": "evil:run"}], ids=json.dumps)
def test_a_checkpoint_imports_nothing_to_be_judged(named: dict[str, Any], trained: Path, unpacked: Path) -> None:
    parts = {"algorithm": {"name": "evil:run"}, "selection": {"name": "evil:run"}}
    file = forged(trained, unpacked, {"task": named, **parts})
    code, said, error = edgefl(unpacked, "export", file.name, "out.onnx")
    assert (code, (unpacked / CANARY).exists()) == (0, False), error
    assert "not measured: " in said
    assert "'evil:run' is code" in said


def journal(folder: Path, **sections: Any) -> Path:
    """The folder of a run whose journal names what these sections name."""
    run = folder / "night"
    run.mkdir()
    task = {"partition": {"kind": "iid", "devices": 2}}
    table = parse(RunFile, {"run": {"name": "night"}, "task": task}, "test", environment={}).model_dump(mode="json")
    forged = {
        name: {**(table[name] or {}), **section} if isinstance(section, dict) else section
        for name, section in sections.items()
    }
    book = Journal(FolderDisk(run))
    book.set(run=json.dumps({**table, **forged}))
    book.close()
    return run


PRIVATE = {"mechanism": "output", "clip": 1.0, "sigma": 1.0}


def test_a_report_imports_nothing_that_a_journal_names(unpacked: Path) -> None:
    journal(unpacked, algorithm={"name": "evil:run"}, privacy=PRIVATE)
    code, _, error = edgefl(unpacked, "report", "night", "--out", "report.html")
    assert (code, (unpacked / CANARY).exists()) == (0, False), error
    report = (unpacked / "report.html").read_text()
    assert "not known here" in report
    assert "edgefl report run.toml" in report


BEGIN = "give the run file in place of the folder: edgefl coordinator extend run.toml --rounds 3"


@pytest.mark.parametrize(
    "named",
    [
        {"algorithm": {"name": "evil:run"}},
        {"selection": {"name": "evil:run"}},
        {"task": {"model": "evil:run"}},
        {"task": {"data": "evil:run"}},
        {"task": {"loss": "evil:run"}},
        {"task": {"augment": ["evil:run"]}},
        {"wire": {"up": {"codec": "evil:run"}}},
        {"aggregation": [{"name": "evil:run"}]},
    ],
    ids=json.dumps,
)
def test_the_folder_of_a_run_chooses_no_code_for_what_goes_on_with_it(
    named: dict[str, Any], unpacked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(unpacked)
    with pytest.raises(CodeRefused, match=r"'evil:run' is code: .*: this is the remedy"):
        begun(journal(unpacked, **named), remedy="this is the remedy")
    assert not (unpacked / CANARY).exists()


def test_what_reads_the_folder_of_a_run_names_the_way_to_choose_code(unpacked: Path) -> None:
    journal(unpacked, task={"data": "evil:run", "model": "evil:run"}, algorithm={"name": "evil:run"})
    code, _, error = edgefl(unpacked, "coordinator", "extend", "night", "--rounds", "3", "--later")
    assert (code, BEGIN in one_line(error)) == (2, True)
    code, _, error = edgefl(unpacked, "replay", "night", "--again")
    assert (code, "--run run.toml" in one_line(error)) == (2, True)
    for words in (("status", "night"), ("replay", "night")):
        edgefl(unpacked, *words)
    assert not (unpacked / CANARY).exists()


FROM_A_SHELL = "import sys; from edgefl.cli.entry import main; sys.exit(main())"


@pytest.mark.night
def test_a_run_file_elsewhere_imports_nothing_from_the_current_folder(own: Path, tmp_path: Path) -> None:
    """`edgefl` as a shell starts it: Python puts no current folder before what is installed, and we do not either."""
    shadows = ("sympy", "networkx", "torch", "onnx", "onnxscript", "multiprocess", "psutil", "yaml", "PIL")
    for name in shadows:
        (tmp_path / f"{name}.py").write_text(f"open({CANARY!r}, 'w').write({name!r})\nraise ImportError({name!r})\n")
    command = [sys.executable, "-I", "-c", FROM_A_SHELL, "simulate", str(own / "run.toml")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert not (tmp_path / CANARY).exists(), (tmp_path / CANARY).read_text()
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("data", [{"query": "SELECT * FROM v"}, {"most_mb": 100_000_000}], ids=json.dumps)
def test_a_journal_does_not_say_how_much_is_read(
    data: dict[str, Any], unpacked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(unpacked)
    folder = journal(unpacked, data=data)
    ((key, value),) = data.items()
    with pytest.raises(ConfigError, match=f"its journal says data.{key} = .*: this is the remedy"):
        begun(folder, remedy="this is the remedy")
    assert begun(folder, [f"data.{key}={json.dumps(value)}"], remedy="").data.model_dump()[key] == value
    own = parse(RunFile, {"data": data, "rounds": {"cohort": 1}}, "run.toml", environment={})
    assert begun(folder, remedy="", own=own).data.model_dump()[key] == value


# ---- code of the operator's own --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a network, a loss and an algorithm of the operator's own, played twice by the same command."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "mine.py").write_text(MINE)
    (folder / "run.toml").write_text(RUN)
    for _ in range(2):  # the second time it knows that the run has ended: its folder is compared with the run file
        code, _, error = edgefl(folder, "simulate", "run.toml", "--out", "own")
        assert code == 0, error
    return folder


@pytest.mark.night
def test_a_network_of_one_s_own_is_exported_once_it_is_named(own: Path) -> None:
    code, _, error = edgefl(own, "export", "own", "out.onnx")
    assert (code, "'mine:net' is code" in one_line(error)) == (2, True)
    code, said, error = edgefl(own, "export", "own", "out.onnx", "--model", "mine:net")
    assert code == 0, error
    assert "mine:Own, 1 rounds on digits" in said
    assert "not measured: its loss 'mine:loss' is code: name the run file with --run run.toml" in said
    code, said, error = edgefl(own, "export", "own", "out.onnx", "--run", "run.toml")
    assert code == 0, error
    assert "accuracy: " in said


def test_another_network_than_the_one_of_the_file_is_refused(own: Path, trained: Path) -> None:
    code, _, error = edgefl(own, "export", "own", "other.onnx", "--model", "mine:other")
    assert code == 2
    assert "task.model = 'mine:net', and you name 'mine:other'" in one_line(error)
    code, _, error = edgefl(own, "export", str(trained / "theirs"), "other.onnx", "--run", "run.toml")
    assert (code, "task.model = 'softmax', and you name 'mine:net'" in one_line(error)) == (2, True)
    assert not (own / "other.onnx").exists()


def test_code_that_was_changed_since_is_seen_by_its_tensors(own: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE.replace("def net(", "def before(").replace("def other(", "def net("))
    code, _, error = edgefl(tmp_path, "export", str(own / "own"), "other.onnx", "--model", "mine:net")
    assert (code, "holds other tensors than task.model = 'mine:net' makes here" in one_line(error)) == (2, True)


def test_what_makes_no_network_is_not_called(trained: Path, unpacked: Path) -> None:
    file = forged(trained, unpacked, {"task": {"model": "subprocess:Popen"}})
    code, _, error = edgefl(unpacked, "export", file.name, "out.onnx", "--model", "subprocess:Popen")
    assert (code, "makes no network" in one_line(error)) == (2, True)


@pytest.mark.parametrize(
    ("table", "why"),
    [
        (
            {"algorithm": {"name": "edgefl.learn.aggregation:Mean"}},
            "has no method `plan`: it is made for something else",
        ),
        ({"aggregation": [{"name": "edgefl.learn.algorithms.fedavg:FedAvg"}]}, "has no method `apply`"),
        ({"selection": {"name": "edgefl.learn.aggregation:Mean"}}, "has no method `order`"),
        ({"wire": {"up": {"codec": "edgefl.learn.aggregation:Mean"}}}, "has no method `encode`"),
        ({"task": {"loss": "os:system"}}, "is no function of logits and labels"),
        ({"task": {"loss": "subprocess:Popen"}}, "is no function of logits and labels"),
        ({"task": {"augment": ["os:system"]}}, "is no function of samples"),
    ],
    ids=str,
)
def test_what_is_named_is_what_it_is_named_for(table: dict[str, Any], why: str) -> None:
    user_code.allow_in(table)
    with pytest.raises(ConfigError, match=why):
        parse(RunFile, {"rounds": {"cohort": 2}, **table}, "test", environment={})


@pytest.mark.parametrize("name", ["os:getcwd", "threading:Thread"])
def test_data_are_what_a_function_gives(name: str) -> None:
    user_code.allow(name)
    with pytest.raises(ConfigError, match="has no function"):
        catalog.load(name)


# ---- the gate itself -------------------------------------------------------------------------------------------------


def test_what_the_operator_named_is_allowed_and_nothing_beside_it() -> None:
    user_code.allow_in({"task": {"model": "mine:net"}, "broker": {"url": "mqtt://me:secret@host"}})
    assert user_code.is_allowed("mine:net")
    assert not user_code.is_allowed("mine:other")
    assert "secret" not in os.environ[user_code.PLACES]
    user_code.allow("ft=fedavg:lr=0.1+mine.stages:Halve:by=2,mine.sgd:Twice")
    assert all(map(user_code.is_allowed, ["mine.stages:Halve", "mine.sgd:Twice"]))


@pytest.mark.parametrize("model", ["edgefl.learn.session_objects:Any", "edgefl.learn.models.zoo:mlp", "os:system"])
def test_a_place_of_ours_is_a_place_like_any_other(model: str) -> None:
    with pytest.raises(CodeRefused):
        build(model, (4,), 2, 0)


@pytest.mark.parametrize(("name", "shape"), [("sh -c", [1]), ("*", [1]), ("x", [-1]), ("x", [0])])
def test_a_form_has_names_that_are_arguments_and_sizes(name: str, shape: list[int]) -> None:
    field = {"name": name, "shape": shape, "whole": False, "learnt": True}
    with pytest.raises(RemoteError):
        checked(read({"kind": "", "inputs": [field], "labels": [], "outputs": []}))


# Who may let places be followed: what reads files, flags and objects of the operator's own.
MAY_ALLOW = {
    "edgefl/server/submitting.py",  # a run file that an admin of a server hands over; what others send names no code
    "edgefl/lab/api/algorithm.py",  # objects and words of a Python program
    "edgefl/lab/api/description.py",
    "edgefl/lab/api/entries.py",
    "edgefl/cli/compare.py",  # --algorithms
    "edgefl/cli/experiment.py",
    "edgefl/cli/export.py",  # --model
    "edgefl/job/config/reader.py",  # files on the command line, --set, the environment
    "edgefl/sim/engine_ray.py",  # what the simulation's own process was allowed, in its actors
}
# Who reads a file as the operator's own.
MAY_READ_OWN = {
    "edgefl/lab/api/description.py",  # run_file = "run.toml"
    "edgefl/cli/compare.py",
    "edgefl/cli/experiment.py",
    "edgefl/job/config/origin.py",
    "edgefl/job/config/reader.py",
}
# Who imports a module whose name is not written there.
MAY_IMPORT = {
    "edgefl/__init__.py",  # what edgefl offers, from its own list
    "edgefl/learn/models/torch_imports.py",  # a module of edgefl.learn.models
    "edgefl/learn/registry.py",  # ours, from the list it was made with
    "edgefl/system/slim_imports.py",
    "edgefl/system/user_code.py",  # the gate
    "device_agent/box/inside.py",  # one of two engines
    "device_agent/box/fork_server.py",  # modules of its own list
}


# Who reads a run, agent or gateway file that was named on a command line (`load`, which lets it name code). Besides
# edgefl/cli, where command lines are read:
MAY_LOAD = {
    "edgefl/ops/doctor/afar.py",  # the agent's own file, which the agent names on its command line
    "edgefl/ops/run_lookup.py",  # the run file given to status and report
    "edgefl/ops/bench/memory.py",
    "device_agent/start.py",
    "gateway/start.py",
}
# Who makes a run file or agent file of tables, which may name what is allowed already and nothing else.
MAY_MAKE = {
    "edgefl/server/run_progress.py",  # of a run that was submitted: how many rounds it has
    "edgefl/server/submitting.py",  # of what a person sends to a server
    "coordinator/durable/existing_run.py",  # of a journal
    "coordinator/shell/exporting.py",  # of a checkpoint
    "device_agent/enrol.py",  # of a kit
    "edgefl/lab/api/description.py",  # of a Python program
    "edgefl/lab/api/entries.py",
    "edgefl/lab/comparison/grid.py",  # of the operator's file, with other values
    "edgefl/lab/comparison/variants.py",
    "edgefl/ops/bench/empty_jobs.py",
    "edgefl/ops/reporting.py",  # of a journal
    "edgefl/sim/torch_process.py",  # of the parent process
    "gateway/start.py",  # the agents of a site
}
FILES = {"RunFile", "AgentFile", "GatewayFile"}


def users(*names: str) -> set[str]:
    """The files of production code that use something by one of these names."""
    return {
        path.relative_to(ROOT).as_posix()
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute | ast.Name) and ast.unparse(node) in names
    }


def test_only_what_reads_the_operator_s_own_words_lets_code_be_named() -> None:
    assert not [path for path in SOURCES if "user_code import" in path.read_text()], "by its full name, to be seen here"
    assert users("user_code.allow", "user_code.allow_in") == MAY_ALLOW
    assert users("read_own") == MAY_READ_OWN
    loading = {path.relative_to(ROOT).as_posix() for path in SOURCES if loads(ast.parse(path.read_text()))}
    assert {path for path in loading if not path.startswith("edgefl/cli/")} == MAY_LOAD
    assert users("user_code.PLACES") == {"device_agent/box/fork_server.py"}, "who hands them to its own process"


def loads(tree: ast.AST) -> bool:
    """Whether a module has the reader of the operator's files, under whatever name."""
    return any(
        (isinstance(node, ast.ImportFrom) and node.module == "edgefl.job.config.reader" and "load" in names_of(node))
        or (isinstance(node, ast.Attribute) and ast.unparse(node) == "reader.load")
        for node in ast.walk(tree)
    )


def names_of(node: ast.ImportFrom) -> set[str]:
    return {alias.name for alias in node.names}


def makes(tree: ast.AST) -> bool:
    """Whether a module makes a run or agent file of something else than a file: by its class, or by `parse`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            kind, _, method = ast.unparse(node.func).rpartition(".")
            first = ast.unparse(node.args[0]) if node.args else ""
            of_the_class = method in FILES or (
                kind in FILES and method.startswith(("model_validate", "model_construct"))
            )
            if of_the_class or (first in FILES and method.startswith("parse")):
                return True
    return False


def test_a_run_file_is_made_of_tables_in_few_places() -> None:
    """`load` and the like of the operator's files, and these, which allow nothing."""
    assert {path.relative_to(ROOT).as_posix() for path in SOURCES if makes(ast.parse(path.read_text()))} == MAY_MAKE


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("from edgefl.job.config.reader import load as other\nother(RunFile, path)", (True, False)),
        ("from edgefl.job.config import reader\nreader.load(RunFile, path)", (True, False)),
        ("RunFile(**table)", (False, True)),
        ("RunFile.model_validate(table)", (False, True)),
        ("parse(RunFile, table, '')", (False, True)),
        ("reader.parse(AgentFile, table, '')", (False, True)),
        ("parse(address)", (False, False)),
    ],
)
def test_who_reads_and_who_makes_a_file_is_seen(text: str, seen: tuple[bool, bool]) -> None:
    assert (loads(ast.parse(text)), makes(ast.parse(text))) == seen


def test_only_the_gate_imports_what_is_named_elsewhere() -> None:
    importing = {
        path.relative_to(ROOT).as_posix()
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"import_module", "importlib.import_module"}
        if not isinstance(node.args[0], ast.Constant)
    }
    assert importing == MAY_IMPORT


def test_a_module_is_looked_for_in_packages_only_where_its_place_is_allowed() -> None:
    """To look for `a.b` imports `a`."""
    looking = {path.relative_to(ROOT).as_posix() for path in SOURCES if "find_spec(module)" in path.read_text()}
    assert looking == {"edgefl/job/run/fingerprint.py"}
