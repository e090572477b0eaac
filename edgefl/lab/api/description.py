"""A run as described in Python, and the run file that it comes to."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict

from edgefl.base.errors import ConfigError
from edgefl.job.config.reader import parse, read_own
from edgefl.job.config.schema import RunFile
from edgefl.job.run.job import device_names
from edgefl.lab.api.algorithm import AlgorithmLike, algorithm_table
from edgefl.lab.api.data import DataLike, given_data
from edgefl.lab.api.fleet import FleetLike, fleet_of
from edgefl.lab.api.network import model_word
from edgefl.lab.api.torch_losses import torch_loss
from edgefl.learn import session_objects
from edgefl.learn.losses import Loss
from edgefl.learn.models.user_networks import ModelLike
from edgefl.learn.session_objects import Hold
from edgefl.learn.tasks.kinds import kind_of
from edgefl.system import user_code

ORIGIN = "edgefl.simulate"  # stands in messages, where a run file would


class Setup(TypedDict, total=False):
    """What can be said in Python about a run beside its model and data; None is as if it had not been said."""

    test: DataLike | None
    kind: str | None
    algorithm: AlgorithmLike | None
    fleet: FleetLike | None
    rounds: int | None
    seed: int | None
    loss: str | Loss | None
    backend: Literal["onnx", "torch"] | None
    name: str | None
    settings: Mapping[str, Any] | None
    run_file: str | Path | None
    data_root: str | Path | None


class Description(Setup, total=False):
    """Everything about a run that can be said in Python (`edgefl.simulate`)."""

    model: ModelLike | None
    data: DataLike | None


@dataclass(frozen=True, slots=True)
class DescribedRun:
    """The run file of a description, and what it leaves out."""

    file: RunFile
    root: Path | None  # where data sets are
    clients: dict[str, str]  # whose data each device has, where the data say it

    @property
    def only_here(self) -> list[str]:
        """What no other process would find."""
        return session_objects.only_here(self.file.model_dump())


@contextmanager
def described(description: Description) -> Iterator[DescribedRun]:
    """The run while the block lasts: so long its objects have names."""
    with session_objects.holding() as hold:
        yield _described(description, hold)


def _described(given: Description, hold: Hold) -> DescribedRun:
    tables = _base(given.get("run_file"))
    task, fleet = tables.setdefault("task", {}), given.get("fleet")
    owners = _learnt(given, task, hold)
    if fleet is not None or "partition" not in task:
        _merge(tables, fleet_of({} if fleet is None else fleet).tables(len(owners) if owners else None))
    if given.get("algorithm") is not None:
        tables["algorithm"] = algorithm_table(given["algorithm"], hold)
    for section, key in (("task", "kind"), ("task", "backend"), ("run", "rounds"), ("run", "seed"), ("run", "name")):
        if (value := given.get(key)) is not None:
            _merge(tables, {section: {key: value}})
    for key, value in (given.get("settings") or {}).items():
        _merge(tables, _nested(key, value))
    if isinstance(tables.get("algorithm"), dict):
        tables["algorithm"].setdefault("name", "fedavg")  # settings={"algorithm.lr": 0.1} says nothing else
    user_code.allow_in(tables)
    root = given.get("data_root")
    file = parse(RunFile, tables, str(given.get("run_file") or ORIGIN), environment={})
    return DescribedRun(file, None if root is None else Path(root), _clients(file, owners))


def _learnt(given: Description, task: dict[str, Any], hold: Hold) -> tuple[str, ...] | None:
    """Put data, loss and model into the task; gives back the owners of the data, where they have any."""
    owners: tuple[str, ...] | None = None
    loss = _loss(given["loss"], hold) if given.get("loss") is not None else task.get("loss")
    settings = given.get("settings") or {}
    kind = given.get("kind") or settings.get("task.kind") or task.get("kind")
    if kind is None and loss is not None and (kind := kind_of(loss)) is not None:
        task["kind"] = kind
    if given.get("data") is not None:
        data = given_data(given["data"], given.get("test"), loss, hold, plain=kind in {None, "plain"})
        task["data"], owners, loss = data.word, data.owners, data.loss or loss
    elif given.get("test") is not None:
        raise ConfigError("test is the test part of data; give data too")
    elif not isinstance(given.get("model"), str | None) and "data" not in task and "task.data" not in settings:
        raise ConfigError(
            "give data too: (x, y), clients as {name: (x, y)}, a torch Dataset, or a name such as 'digits'"
        )
    if loss is not None:
        task["loss"] = loss
    if given.get("model") is not None:
        task["model"] = model_word(given["model"], hold)
    return owners


def _base(path: str | Path | None) -> dict[str, Any]:
    """The tables of the run file that the description is about, if there is one."""
    if path is None:
        return {}
    return read_own(Path(path))


def _loss(loss: Any, hold: Hold) -> str:
    if isinstance(loss, str):
        return loss
    if (known := torch_loss(loss)) is not None:
        return known
    if not callable(loss):
        raise ConfigError(f"loss = {type(loss).__name__}: give a name, or a function of logits and labels")
    return session_objects.place(loss) or hold(str(getattr(loss, "__name__", "loss")), loss)


def _nested(key: str, value: Any) -> dict[str, Any]:
    """`"wire.codec": "int8"` as tables in tables."""
    *sections, last = key.split(".")
    table: dict[str, Any] = {last: dict(value) if isinstance(value, Mapping) else value}
    for section in reversed(sections):
        table = {section: table}
    return table


def _merge(tables: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Put these over what is there, key by key; a partition is replaced whole, for its keys belong together."""
    for key, value in more.items():
        if isinstance(value, Mapping) and isinstance(tables.get(key), dict) and key != "partition":
            _merge(tables[key], value)
        else:
            tables[key] = value


def _clients(file: RunFile, owners: tuple[str, ...] | None) -> dict[str, str]:
    """Return whose data each device has; none where a device has those of several owners."""
    held = file.task.partition
    if held is None or owners is None or held.kind != "natural" or held.devices != len(owners):
        return {}
    return dict(zip(device_names(held.devices), owners, strict=True))
