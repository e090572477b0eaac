"""What a device says when something fails holds nothing of its data: marked values are fed through its error paths.

The marked values are a word and a number that occur nowhere else: as cells, labels, column titles, names of arrays,
files and folders, lengths, and in what other libraries raise. They may stand in the device's own log, and in nothing
that leaves the device.
"""

import ast
import importlib
import io
import json
import pkgutil
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import paho.mqtt.client as paho
import pytest
from fleets import prepared, run_file, until
from onnx import TensorProto, helper
from receiver import receiving

import device_agent
import edgefl
from coordinator.shell.device_keys import DeviceKeys
from device_agent.decide.failure_reason import judged
from device_agent.shell.own_samples import samples_of
from device_agent.shell.samples import Samples
from edgefl.base.errors import IN_THE_LOG, EdgeflError, RemoteError, coded
from edgefl.fleet.folder import FleetFolder
from edgefl.job.config.agent_file import LocalData
from edgefl.job.run.work import ModelRef, Worker
from edgefl.job.transforms.listing import device_transforms
from edgefl.learn.algorithms import registry
from edgefl.learn.contract import Budget, Task
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.data.labels import of_device
from edgefl.learn.losses import loss
from edgefl.learn.models import onnx_session
from edgefl.learn.tasks.fields import Field
from edgefl.learn.tasks.form import Form
from edgefl.ops.diagnosis import Asker, FleetAccess, Lives, ask
from edgefl.system import user_code
from edgefl.wire import key_file
from edgefl.wire.broker import Broker
from edgefl.wire.codecs import Float32

ROOT = Path(__file__).parents[2]
WORD, NUMBER = "mineshaft", 73219
PLAIN = "1.5,2,0\n2.5,1,1\n" * 20


MARKED = re.compile(rf"{WORD}|(?<![\d.]){NUMBER}(?!\d)|(?<!\d)7\.32(2|19)e", re.IGNORECASE)  # as :g and :.4g have it


def quotes(text: str) -> bool:
    """Whether a text has one of the marked values in it; not among the digits of a time, where any may stand."""
    return MARKED.search(text) is not None


# ---- every class of errors -------------------------------------------------------------------------------------------


def classes(root: type[EdgeflError]) -> Iterator[type[EdgeflError]]:
    yield root
    for one in root.__subclasses__():
        yield from classes(one)


def everything_of(package: Any) -> None:
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except ImportError:  # of an extra that is not installed here
                continue


def test_a_message_that_is_not_marked_stays_whatever_class_it_is_of() -> None:
    everything_of(edgefl)
    everything_of(device_agent)
    seen = 0
    for kind in set(classes(EdgeflError)):
        if kind.__init__ not in {EdgeflError.__init__, RemoteError.__init__}:
            continue  # it says what travels of itself: see below
        about = ("some.code", f"{WORD} {NUMBER}") if issubclass(kind, RemoteError) else (f"{WORD} {NUMBER}",)
        with pytest.raises(kind) as caught:
            raise kind(*about)
        verdict, seen = judged(caught.value), seen + 1
        assert quotes(verdict.reason), kind
        assert not quotes(verdict.told), kind
        assert verdict.told == f"{coded(caught.value)}: {IN_THE_LOG}", "a code that is in the device's log"
        assert verdict.told in verdict.logged
    assert seen >= 8


def decoded() -> Any:
    return f"{WORD} \xff".encode("latin-1").decode()


def gathering() -> bytes:
    """A graph that fails when it runs: it looks up a place that is not there."""
    floats, ints = TensorProto.FLOAT, TensorProto.INT64
    node = helper.make_node("Gather", ["table", "x"], ["z"])
    named = [helper.make_tensor_value_info(*about) for about in (("x", ints, [None]), ("z", floats, [None]))]
    table = helper.make_tensor("table", floats, [2], [0.0, 1.0])
    graph = helper.make_graph([node], "gathering", named[:1], named[1:], [table])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(model.SerializeToString())


def place_that_is_not_there() -> dict[str, Any]:
    return {"x": np.array([NUMBER], np.int64)}


OTHERS: list[Callable[[], Any]] = [
    lambda: {}[WORD],
    lambda: int(f"{WORD}{NUMBER}"),
    lambda: Path(f"/{WORD}/{NUMBER}").read_text(),
    decoded,
    lambda: np.zeros(3)[NUMBER],
    lambda: np.zeros((2, 2)).reshape(NUMBER),
    lambda: np.empty((NUMBER, 10**13)),
    lambda: onnxruntime.InferenceSession(WORD.encode() * NUMBER),
    lambda: onnxruntime.InferenceSession(f"/{WORD}.onnx"),
    lambda: onnxruntime.InferenceSession(gathering()).run(None, place_that_is_not_there()),
    lambda: onnxruntime.InferenceSession(gathering()).run(None, {"x": np.zeros((2, NUMBER), np.int64)}),
    lambda: json.loads(f"{{{WORD}"),
    lambda: getattr(object(), WORD),
]


@pytest.mark.parametrize("fails", OTHERS, ids=[str(n) for n in range(len(OTHERS))])
def test_what_another_library_raises_is_told_as_its_kind_alone(fails: Callable[[], Any]) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - any, which is what is tested
        fails()
    verdict = judged(caught.value)
    assert not quotes(verdict.told)
    assert verdict.told == f"{type(caught.value).__name__}: {IN_THE_LOG}", "raised outside of edgefl"


def test_what_a_graph_fails_at_is_not_told() -> None:
    session, options = onnx_session.loaded(gathering(), 1), onnx_session.run_options()
    binding = session.io_binding()
    binding.bind_cpu_input("x", place_that_is_not_there()["x"])
    binding.bind_output("z")
    with pytest.raises(RemoteError) as caught:
        onnx_session.run(session, binding, options)
    assert quotes(judged(caught.value).reason), "onnxruntime says which place it is"
    assert judged(caught.value).told == f"model.failed: {IN_THE_LOG}"


# ---- data that cannot be read ----------------------------------------------------------------------------------------


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def sqlite(folder: Path) -> bytes:
    path = folder / "made.sqlite"
    with sqlite3.connect(path) as made:
        made.execute(f"create table {WORD} (a, label)")
        made.executemany(f"insert into {WORD} values (?, ?)", [(f"{WORD}{NUMBER}", 1)] * 3)
    made.close()
    return path.read_bytes()


TABLES = {
    "a word": PLAIN + f"{WORD},2,0\n",
    "a word below a title": f"{WORD},b,label\n" + PLAIN + f"1,{WORD}{NUMBER},0\n",
    "a time": PLAIN + "2026-03-0173219,1,0\n".replace("0173219", "01") + f"{WORD},1,1\n",
    "an empty cell": f"{WORD},b,label\n" + PLAIN + ",2,0\n",
    "an empty label": "a,b,label\n" + PLAIN + f"{NUMBER},2,\n",
    "too few cells": PLAIN + f"{NUMBER},0\n",
    "infinity": PLAIN + f"{NUMBER}e999,1,0\n",
    "texts and numbers": PLAIN + f"1,2,{WORD}\n",
    "a text for each": "".join(f"{n},2,{WORD}{n}\n" for n in range(60)),
    "labels that go up": PLAIN + f"1,2,-{NUMBER}.5\n1,2,{WORD}\n",
    "nothing": f"{WORD},{WORD}2,label\n",
    "one column": f"{WORD}\n{NUMBER}\n",
    "no text": PLAIN.encode() + f"{WORD}\xff,1,1\n".encode("latin-1"),
    "a quote": PLAIN + f'"{WORD}' + "x" * 200_000,
}
FILES: dict[str, Callable[[Path], tuple[str, bytes | None]]] = {
    **{
        name: lambda _, text=text: ("csv", text if isinstance(text, bytes) else text.encode())
        for name, text in TABLES.items()
    },
    "no file": lambda _: ("csv", None),
    "rubbish": lambda _: ("npz", WORD.encode()),
    "other arrays": lambda _: ("npz", npz(**{WORD: np.zeros((4, 2))})),
    "objects": lambda _: ("npz", npz(x=np.array([[WORD], [NUMBER]], object), y=np.zeros(2))),
    "texts": lambda _: ("npz", npz(x=np.array([[WORD]] * 4), y=np.zeros(4))),
    "texts as targets": lambda _: ("npz", npz(x=np.zeros((4, 2)), y=np.array([WORD] * 4))),
    "not finite": lambda _: ("npz", npz(x=np.full((4, 2), np.inf), y=np.full(4, NUMBER))),
    "labels beyond": lambda _: ("npz", npz(x=np.zeros((4, 2)), y=np.full(4, NUMBER), classes=np.array(3))),
    "fewer labels": lambda _: ("npz", npz(x=np.zeros((NUMBER, 2)), y=np.zeros(4))),
    "no database": lambda _: ("sqlite", WORD.encode() * 100),
    "a word in a row": lambda folder: ("sqlite", sqlite(folder)),
    "no parquet": lambda _: ("parquet", WORD.encode()),
    "no folder": lambda _: ("images", WORD.encode()),
}


@pytest.mark.parametrize("kind", FILES)
def test_of_data_that_cannot_be_read_the_place_is_told_and_not_what_stands_there(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    suffix, content = FILES[kind](tmp_path)
    path = tmp_path / f"{WORD}.{suffix}"
    if content is not None:
        path.write_bytes(content)
    samples = samples_of(LocalData(source=f"{suffix}:{path}"))
    assert samples.missing, "this is no error any more: take another one"
    assert not quotes(samples.trouble), samples.trouble
    assert quotes(caplog.text), "the device's own log says it"
    assert samples.trouble in caplog.text, "and what others were told of it"


def test_the_line_of_a_broken_cell_is_told(tmp_path: Path) -> None:
    path = tmp_path / f"{WORD}.csv"
    path.write_text(PLAIN[: len("1.5,2,0\n") * 31] + f"1.5,{WORD},1\n")
    assert samples_of(LocalData(source=f"csv:{path}")).trouble.startswith("line 32, column 2: a cell is not a number")


def test_images_in_folders_are_not_told_by_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    inside = tmp_path / "pictures" / WORD
    inside.mkdir(parents=True)
    (inside / f"{NUMBER}.png").write_bytes(b"rubbish")
    samples = samples_of(LocalData(source=f"images:{tmp_path / 'pictures'}"))
    assert samples.missing
    assert not quotes(samples.trouble)
    assert quotes(caplog.text)


def parquet(path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="needs pyarrow (edgefl[parquet])")
    importlib.import_module("pyarrow.parquet").write_table(arrow.table({WORD: [1.0] * 9, "label": [0, 1, 1] * 3}), path)


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "csv:a.csv": ({"columns": (WORD,)}, "it lacks a column that data.columns names"),
    "csv:./a.csv": ({"label": WORD}, "it lacks a column that data.label names"),
    "csv:../here/a.csv": ({"columns": ("1", "1"), "label": "3"}, "a column of data.columns is named twice"),
    "sqlite:a.sqlite": ({"query": f"SELECT {WORD}2 FROM {WORD}"}, "SQLite ended with a OperationalError"),
    "sqlite:two.sqlite": ({}, "it has 2 tables; say what to read in data.query"),
    "parquet:a.parquet": ({"time": f"{WORD}2"}, "it lacks a column that data.time names"),
    f"{WORD}:read": ({}, "the module that data.source names cannot be imported (ModuleNotFoundError)"),
    "mine:write": ({}, "the module that data.source names has no function of that name"),
    "mine:read": ({}, "the function that data.source names raised KeyError"),
}


@pytest.mark.parametrize("source", MISTAKES)
def test_what_is_wrong_with_the_agent_file_s_data_is_told_by_its_key(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.syspath_prepend(tmp_path / "here")
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    Path("a.csv").write_text(PLAIN)
    Path("a.sqlite").write_bytes(sqlite(tmp_path))
    Path("two.sqlite").write_bytes(Path("a.sqlite").read_bytes())
    with sqlite3.connect("two.sqlite") as made:
        made.execute("create table other (a)")
    made.close()
    Path("mine.py").write_text(f"def read():\n    raise KeyError('{WORD}')\n")
    if source.startswith("parquet"):
        parquet(Path("a.parquet"))
    about, told = MISTAKES[source]
    settings = LocalData(source=source, **about)
    user_code.allow(source)
    samples = samples_of(settings)
    assert told in samples.trouble
    assert not quotes(samples.trouble)
    assert samples.trouble in caplog.text


@pytest.mark.parametrize("error", [RuntimeError(WORD), KeyError(NUMBER), OSError(2, "no", f"/{WORD}")])
def test_a_function_of_the_operators_may_raise_anything(error: Exception) -> None:
    def read() -> Any:
        raise error

    samples = Samples.opened(read)
    assert not quotes(samples.trouble)
    assert samples.trouble.startswith(type(error).__name__)


# ---- data that a run has no use for ----------------------------------------------------------------------------------

X = np.zeros((4, 2), np.float32)
NAMED = Dataset(X, np.zeros(4, np.int64), 2, (WORD, f"{WORD}2"), numbered=False)
HIGH = Dataset(X, np.array([0, 1, 2, NUMBER]), NUMBER + 1)
REAL = Dataset(X, np.full(4, NUMBER + 0.5, np.float32), 0)
SEVERAL = Dataset(X, np.full((4, 2), NUMBER, np.float32), 0, target_names=(WORD, "b"))
OTHER_INPUTS = replace(HIGH, form=Form(inputs=(Field(WORD, (2,)),)))
OTHER_LABELS = replace(REAL, form=Form(labels=(Field(WORD, (NUMBER,)),)))
SEGMENTS = Form("segmentation", (), (Field("", (2, 2), whole=True),), (Field("", (3, 2, 2)),))
TOKENS = Form("next_token", (), (Field("", (2,), whole=True),), (Field("", (2, 5)),))
HEADS = Form("heads", (), (Field("a", (), whole=True),), (Field("a", (3,)),))
ODD_ONE = Dataset(X, np.array([0, 1, 0, 1]), 2, (WORD, "b"), numbered=False)
MISFITS: list[tuple[Dataset, tuple[Any, ...]]] = [
    (NAMED, (2, (), "device 'd'")),
    (ODD_ONE, (2, ("a", "b"), "device 'd'")),
    (HIGH, (3, (), "device 'd'")),
    (REAL, (3, (), "device 'd'")),
    (SEVERAL, (0, (), "device 'd'", 3)),
    (SEVERAL, (0, (), "device 'd'", ("c", "b"))),
    (OTHER_INPUTS, (3, (), "device 'd'")),
    (OTHER_LABELS, (0, (), "device 'd'")),
    (replace(HIGH, y=np.full((4, 2, 2), NUMBER)), (3, (), "device 'd'", None, SEGMENTS)),
    (replace(HIGH, y=np.full((4, NUMBER), 1)), (3, (), "device 'd'", None, SEGMENTS)),
    (Dataset(np.full((4, 2), NUMBER), np.zeros((4, 2), np.int64), 5), (5, (), "device 'd'", None, TOKENS)),
    (OTHER_LABELS, (0, (), "device 'd'", None, HEADS)),
]


@pytest.mark.parametrize(("data", "run"), MISFITS, ids=[str(n) for n in range(len(MISFITS))])
def test_of_labels_that_do_not_fit_no_value_and_no_name_is_told(data: Dataset, run: tuple[Any, ...]) -> None:
    with pytest.raises(EdgeflError) as caught:
        of_device(data, *run)
    assert not quotes(judged(caught.value).told), judged(caught.value).told


@pytest.mark.parametrize(("data", "run"), MISFITS, ids=[str(n) for n in range(len(MISFITS))])
def test_of_newer_data_that_do_not_fit_no_value_and_no_name_is_told(data: Dataset, run: tuple[Any, ...]) -> None:
    samples = Samples(HIGH, None, lambda: (data, None))
    samples.data = replace(data, x=data.x[:2], y=data.y[:2])  # before
    with suppress(EdgeflError):  # these do not fit either
        samples.current(lambda rows: of_device(rows, *run))
    assert samples.misfit
    assert not quotes(samples.trouble), samples.trouble


# ---- learning that fails ---------------------------------------------------------------------------------------------


def worked(data: Dataset, algorithm: dict[str, Any], *, evaluates: int | None = None) -> None:
    job, _ = prepared(run_file({"name": "fedavg"}, task={"model": "softmax"}))
    model = job.device_model
    learns = registry.algorithm(algorithm)
    transforms = device_transforms(learns, Float32())
    about = "job", "d", learns, model, data, loss("cross_entropy"), transforms, 3
    worker = Worker(*about, secret=True, held_back=data if evaluates is not None else None)
    task = Task(1, np.ones(model.layout.size, np.float32), Budget(None, None), {}, evaluates=evaluates)
    worker.result(task, ModelRef("run", "model"), {})


def samples_up_to(top: float) -> Dataset:
    return Dataset(np.full((20, 20), top, np.float32), np.arange(20) % 3, 10)


OBJECTIVE = {"name": "fedprox", "mu": 0.5, "privacy": {"mechanism": "objective"}}
FAILURES: dict[str, Callable[[], None]] = {
    "no finite number": lambda: worked(samples_up_to(NUMBER * 1e30), {"name": "fedavg", "lr": 1e9}),
    "out of all measure": lambda: worked(samples_up_to(NUMBER), {"name": "fedavg", "lr": 1e9, "epochs": 1}),
    "one by one": lambda: worked(samples_up_to(NUMBER * 1e30), {"name": "fedavg", "lr": 1e9, "optimiser": "adam"}),
    "features that are too long": lambda: worked(samples_up_to(NUMBER / 20**0.5), OBJECTIVE),
    "what is evaluated": lambda: worked(samples_up_to(NUMBER * 1e33), {"name": "fedavg"}, evaluates=1),
}


def spoils(x: Any, _rng: Any) -> Any:
    raise ValueError(f"{WORD} {x.max()}")


def bends(x: Any, _rng: Any) -> Any:
    return np.zeros((NUMBER, 1))


@pytest.mark.parametrize("name", ["spoils", "bends"])
def test_what_a_function_that_changes_samples_does_is_not_told(name: str) -> None:
    place = f"{__name__}:{name}"
    user_code.allow(place)
    with pytest.raises((ValueError, EdgeflError)) as caught:
        worked(samples_up_to(NUMBER), {"name": "fedavg", "augment": [place]})
    assert quotes(judged(caught.value).reason)
    assert not quotes(judged(caught.value).told)


@pytest.mark.parametrize("failure", FAILURES)
def test_of_learning_that_fails_no_size_is_told_and_no_step(failure: str) -> None:
    with pytest.raises(EdgeflError) as caught:
        FAILURES[failure]()
    told = judged(caught.value).told
    assert not quotes(told), told
    assert "step 1" not in told, "which step it was depends on the data"


# ---- what is marked --------------------------------------------------------------------------------------------------

# Everything that a marked text is made of, besides constants, by the file that marks it: names and numbers of the run,
# of the task, of this program and of the agent file; line, row and column numbers; counts of rows, cells and targets.
# No cell, no label, no title, no name of a file. Whoever marks another text adds to this list what it quotes, and has
# thought about it.
FREE: dict[str, set[str]] = {
    # when an alert was told, in seconds: the server's own
    "edgefl/server/decide/alerts.py": {"self.wall"},
    "edgefl/server/http/models.py": {"moment(alert.since if alert.told is None else alert.told)"},
    "device_agent/shell/allowance.py": {"why"},
    "device_agent/durable/failures.py": {"failures"},
    "device_agent/shell/backends.py": {
        "error.told",
        "list(bundle.shape)",
        "list(manifest.sample)",
        "manifest.job",
        "manifest.network",
        "who",
    },
    "device_agent/box/inside.py": {"setup.compute.memory_mb", "why"},
    "device_agent/box/fork_client.py": {"_how(status)", "_seconds(order, self._compute)", "limit"},
    "device_agent/shell/download.py": {"limit", "manifest.size", "self.id", "why"},
    "device_agent/shell/inbound.py": {"key", "told", "trusted"},
    "device_agent/shell/samples.py": {
        "IN_THE_LOG",
        "coded(error)",
        "list(fresh[0].shape)",
        "list(self.data.shape)",
        "self.trouble",
        "told",
    },
    "device_agent/durable/trust.py": {
        "claim.key",
        "manifest.digest[:16]",
        "manifest.job",
        "manifest.round",
        "manifest.run_id",
        "self.models",
        "target.id",
        "target.job",
        "target.round",
        "target.run_id",
        "why",
    },
    "device_agent/shell/workers.py": {
        "FEWER",
        "device",
        "who",
        "list(data.shape)",
        "list(manifest.sample)",
        "manifest.network",
    },
    "edgefl/learn/data/augment.py": {"nearest(name, CHANGES)", "word"},
    "edgefl/learn/data/custom.py": {"', '.join(missing)", "how", "type(e).__name__", "what"},
    "edgefl/learn/data/csv_table.py": {"error.encoding", "place()"},
    "edgefl/learn/data/files.py": {"MISSING"},
    "edgefl/learn/data/labels.py": {"', '.join(names[:20])", "count", "data.targets", "how", "lacking[0]"},
    "edgefl/learn/data/limit.py": {"most"},
    "edgefl/learn/data/parquet_rows.py": {"LONGEST", "done.returncode", "told"},
    "edgefl/learn/data/source.py": {"row"},
    "edgefl/learn/data/sqlite_rows.py": {"len(tables)", "told", "type(error).__name__"},
    "edgefl/learn/data/table.py": {
        "column + 1",
        "few",
        "file.word",
        "key",
        "len(row)",
        "line",
        "most",
        "others",
        "seen",
        "self.width",
        "table.place(odd)",
        "told",
        "what",
    },
    "edgefl/learn/data/tabular.py": {"table.place(row)"},
    "edgefl/learn/models/blocks.py": {"type(model).__name__", "who"},
    "edgefl/learn/models/build.py": {"model", "nearest(model, zoo)"},
    "edgefl/learn/models/onnx_guard.py": {"batch", "limit >> 20", "name", "need >> 20", "why"},
    "edgefl/learn/privacy/linear.py": {"STEPS", "len(shapes)", "name"},
    "edgefl/learn/privacy/noise.py": {"site.model.layout.buffers"},
    "edgefl/learn/registry.py": {"name", "name!r", "nearest(str(name), self)", "self.unknown", "where"},
    "edgefl/job/run/work.py": {"cause", "self.device", "task.round", "told", "where", "why"},
    "edgefl/learn/tasks/heads.py": {"run"},
    "edgefl/learn/tasks/kinds.py": {"in_words(form.labels)", "run"},
    "edgefl/learn/tasks/labels.py": {"below - 1", "least", "what"},
    "edgefl/learn/tasks/next_token.py": {"tokens"},
    "edgefl/learn/tasks/segmentation.py": {"there"},
}


def parts(text: ast.expr, inside: ast.AST) -> Iterator[str]:
    """What a text quotes, also by way of variables that the same function makes of quotations."""
    for node in ast.walk(text):
        if isinstance(node, ast.FormattedValue):
            yield from quoted(node.value, "!r" if node.conversion == ord("r") else "", inside)
    if not isinstance(text, ast.Constant | ast.JoinedStr):
        yield from quoted(text, "", inside)


def quoted(value: ast.expr, conversion: str, inside: ast.AST) -> Iterator[str]:
    yield ast.unparse(value) + conversion
    for node in ast.walk(inside) if isinstance(value, ast.Name) else ():
        if isinstance(node, ast.Assign) and ast.unparse(value) in map(ast.unparse, node.targets):
            texts = (one for one in ast.walk(node.value) if isinstance(one, ast.JoinedStr))
            yield from (name for text in texts for name in parts(text, ast.Constant(None)))


def marked() -> Iterator[tuple[str, str]]:
    """Each file that marks a text, and what its texts quote."""
    for path in (path for folder in ("edgefl", "device_agent", "gateway") for path in (ROOT / folder).rglob("*.py")):
        if path.name == "errors.py":
            continue
        functions = [one for one in ast.walk(ast.parse(path.read_text())) if isinstance(one, ast.FunctionDef)]
        for function, call in (
            (one, node) for one in functions for node in ast.walk(one) if isinstance(node, ast.Call)
        ):
            words = {word.arg: word.value for word in call.keywords}
            texts = call.args if "free_of_data" in words else [words["told"]] if "told" in words else []
            for name in (name for text in texts for name in parts(text, function)):
                yield str(path.relative_to(ROOT)), name


def test_a_marked_text_quotes_nothing_but_what_is_known_to_be_free_of_data() -> None:
    assert {(place, name) for place, name in marked() if name not in FREE.get(place, ())} == set()


def test_what_a_variable_quotes_is_looked_at_too() -> None:
    function = ast.parse("def f(cell, line):\n    told = f'line {line}: {cell}'\n    raise E('x', told=told)").body[0]
    (call,) = (node for node in ast.walk(function) if isinstance(node, ast.Call))
    assert set(parts(call.keywords[0].value, function)) == {"told", "line", "cell"}


# ---- a real fleet ----------------------------------------------------------------------------------------------------

RUN = """
[run]
name = "canaries"
rounds = 3
seed = 4
folder = "{folder}/runs"
[task]
data = "csv:{folder}/central.csv"
model = "softmax"
classes = 2
{algorithm}
[rounds]
cohort = 5
quorum = 1
deadline = 20.0
start_with = {there}
[broker]
url = "{broker}"
fleet = "{folder.name}"
identity = "{folder}/identity.key"
[[export.webhooks]]
url = "{hook}"
"""
AGENT = """
[agent]
id = "{name}"
broker = "{broker}"
fleet = "{folder.name}"
folder = "{folder}/devices"
[data]
source = "csv:{folder}/{file}"
{more}
"""
PLAINLY = '[algorithm]\nname = "fedavg"'
PRIVATELY = '[algorithm]\nname = "fedprox"\nmu = 0.5\n[privacy]\nmechanism = "objective"'
DEVICES = {
    "cell": PLAIN + f"{WORD},1,1\n",
    "labels": PLAIN + f"1,2,{NUMBER}\n",
    "texts": "".join(f"1,2,{WORD}{n % 2}\n" for n in range(40)),
    "lengths": PLAIN + f"{NUMBER}e33,{NUMBER}e33,1\n" * 20,
    "good": PLAIN,
}
SHORT = "0.1,0.2,0\n0.2,0.1,1\n" * 20
NOISY = PRIVATELY.replace('"objective"', '"output"\nclip = 1.0\nsigma = 50.0\ndelta = 1e-5')
HIDDEN = "[privacy]\nepsilon = 1e6\ndelta = 0.9\n"  # an allowance
FULL_DISK = "[conditions]\nmin_disk_mb = 1000000000000\n"
LONG = {"longest": SHORT + f"{NUMBER},0,1\n", "good": SHORT}  # how long a sample may be, the proof has a say


@pytest.mark.night
@pytest.mark.parametrize(
    ("algorithm", "devices", "failing", "more"),
    [
        (PLAINLY, DEVICES, {"labels", "texts", "lengths"}, ""),
        (PRIVATELY, LONG, {"longest"}, ""),
        (NOISY, {**DEVICES, "resting": PLAIN}, {"labels", "texts"}, HIDDEN),
    ],
    ids=["plainly", "privately", "with an allowance"],
)
def test_nothing_that_leaves_a_device_has_a_marked_value_in_it(  # noqa: PLR0917 - a fleet and what it does
    mosquitto: Broker, tmp_path: Path, algorithm: str, devices: dict[str, str], failing: set[str], more: str
) -> None:
    heard, connected = list[bytes](), []
    client = paho.Client(paho.CallbackAPIVersion.VERSION2)
    client.on_message = lambda _c, _u, message: heard.append(message.topic.encode() + message.payload)
    client.on_subscribe = lambda *_: connected.append(True)
    client.connect(mosquitto.address.host, mosquitto.address.port)
    client.subscribe(f"edgefl/v1/{tmp_path.name}/#")
    client.loop_start()
    until(lambda: connected)
    (tmp_path / "central.csv").write_text(PLAIN)
    processes = []
    with receiving() as hook:
        try:
            for name, text in devices.items():
                file = f"{WORD}-{name}.csv"
                (tmp_path / file).write_text(text)
                about = {"name": name, "broker": mosquitto.address, "folder": tmp_path, "file": file}
                about["more"] = more + (FULL_DISK if name == "resting" else "")
                (tmp_path / f"{name}.toml").write_text(AGENT.format(**about))
                processes.append(started(tmp_path, name, "agent", "start", f"{name}.toml"))
            about = {"broker": mosquitto.address, "folder": tmp_path, "hook": hook.url}
            about |= {"algorithm": algorithm, "there": sum(name not in {"cell", "resting"} for name in devices)}
            (tmp_path / "run.toml").write_text(RUN.format(**about))
            words = "coordinator", "start", "run.toml", "--json", "--no-rehearse"
            coordinator = started(tmp_path, "coordinator", *words)
            processes.append(coordinator)
            assert coordinator.wait(180) == 0, (tmp_path / "coordinator.log").read_text()
            words = "status", "runs/canaries", "--json"
            status = started(tmp_path, "status", *words)
            assert status.wait(60) == 0
            called = [body for _, _, body in hook.calls]
            signer = key_file.opened(tmp_path / "identity.key", "a", elsewhere="", lost="")
            asker = Asker(tmp_path.name, signer, DeviceKeys(), Lives(tmp_path / "questions"))
            way = FleetAccess(FleetFolder(tmp_path.name), mosquitto.address, asker)
            answers = [ask(way, name, what, "anna", 60.0) for name in devices for what in ("logs", "doctor")]
        finally:
            for process in processes:
                process.send_signal(signal.SIGKILL)
                process.wait()
            client.loop_stop()
    log = (tmp_path / "coordinator.log").read_text()
    declined = {
        one["device"] for one in map(json.loads, filter(_is_json, log.splitlines())) if one["event"] == "declined"
    }
    assert declined == failing, "each of them has failed, and said so"
    if "resting" in devices:
        assert any(b"rests: the conditions of its operator do not hold" in one for one in heard)
        assert any(b"no usable data: its newest data cannot be read" in one for one in heard)
        assert not any(b"of disk free" in one or b"line 41" in one for one in heard)
    elif "cell" in devices:
        assert any(b"no usable data: line 41, column 1" in one for one in heard), (
            "and the one whose data cannot be read"
        )
    left = {"the network": b"".join(heard), "webhooks": b"".join(called), "the run's folder": b"", "logs": log.encode()}
    left["the run's folder"] = b"".join(path.read_bytes() for path in (tmp_path / "runs").rglob("*") if path.is_file())
    unmet = 2 * len({"cell", "resting"} & set(devices))  # asked for no task, so they trust no key
    assert [bool(one.lines or one.findings) for one in answers].count(False) == unmet
    left["answers to questions from afar"] = repr(answers).encode()
    left["status"] = (tmp_path / "status.log").read_bytes()
    for where, content in left.items():
        text = content.decode(errors="replace").replace(str(tmp_path), "")
        assert content or where == "webhooks", where
        assert not quotes(text), where
    own = {name: (tmp_path / f"{name}.log").read_text() for name in devices}
    assert all(quotes(text) for name, text in own.items() if name in {*failing, "cell"}), "the devices' own logs say it"


def _is_json(line: str) -> bool:
    return line.startswith("{")


def started(folder: Path, name: str, *words: str) -> subprocess.Popen[bytes]:
    with (folder / f"{name}.log").open("wb") as log:
        command = [sys.executable, "-m", "edgefl", *words]
        return subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
