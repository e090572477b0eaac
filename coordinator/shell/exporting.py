"""A checkpoint of a run as an ONNX file to deploy, checked against the model it came from."""

import logging
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coordinator.durable import checkpoint
from edgefl.base.errors import CodeRefused, ConfigError, EdgeflError, RemoteError, StoreError
from edgefl.base.scores import Scores, upgraded
from edgefl.base.vector import State, Vector
from edgefl.delivery.card import card, line
from edgefl.delivery.deployed import Deployed, judge
from edgefl.delivery.probe import SHOWN, made_up
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.job.run import statistics
from edgefl.job.run.first_model import Origin, frozen_otherwise
from edgefl.job.run.job import Job
from edgefl.job.run.network import export_graphs
from edgefl.learn import losses
from edgefl.learn.data import files
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.data.reading import Reading
from edgefl.learn.evaluation import metrics
from edgefl.learn.models.base import Model
from edgefl.learn.models.build import build, made_without_memory
from edgefl.learn.models.onnx.bundle import unpack
from edgefl.learn.session_objects import is_yours, shown
from edgefl.learn.tasks import form
from edgefl.learn.tasks.fields import width
from edgefl.learn.tasks.form import PLAIN, Form
from edgefl.learn.tasks.kinds import checked
from edgefl.system import store
from edgefl.system.disk import FolderDisk

if TYPE_CHECKING:
    from edgefl.learn.models.torch_backend import TorchModel

log = logging.getLogger(__name__)

LARGEST = 1 << 22  # numbers of a sample: an image of 1024 x 1024 in four channels
WIDEST = 1 << 26  # of what a network gives for a sample, such as 512 tokens of 100,000 words


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """What a checkpoint holds of a trained model."""

    path: Path
    run: RunFile
    round: int
    params: Vector
    sample: tuple[int, ...]
    classes: int
    targets: int  # real numbers it predicts, where there are no classes
    layout: list[Any]  # names, shapes, number of statistics: as JSON has them
    tensors: State  # as they are in the file
    facts: dict[str, str]  # what the file will say about itself
    normalise: State = field(default_factory=dict)  # mean and scale of the features, where it takes raw units
    form: Form = PLAIN  # how rows of its samples and outputs are read, where that is not plain

    @property
    def outputs(self) -> int:
        """How many numbers it gives for a sample."""
        return width(self.form.outputs) or self.classes or self.targets


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written, and how true it is to the model."""

    path: Path
    run: str
    round: int
    bytes: int
    float_bytes: int
    int8: bool  # whether it has such weights
    parity: float  # largest relative difference of the float file from torch
    gap: float  # the same of what was written
    samples: int
    scores: Scores = field(default_factory=dict)  # of the model, with torch
    exported_scores: Scores = field(default_factory=dict)  # of the file
    tested: int = 0
    untested: str = ""  # why there is none of these
    int8_bytes: int | None = None  # how large the file would be with int8 weights, if it were written so
    about: str = ""  # what the file says about itself


def export_checkpoint(
    source: Path,
    out: Path,
    *,
    best: bool = False,
    int8: bool = False,
    root: Path | None = None,
    network: str | None = None,
    own: RunFile | None = None,
) -> Exported:
    """Write the model of a checkpoint; of a run's folder, the last one or the best.

    Code that the checkpoint names is run only if the operator named it too; `network` is the task.model that the
    operator named. Which files are read as test data, and how much of them, is said by `own`, the operator's run file.
    """
    from edgefl.delivery import deploy  # noqa: PLC0415 - onnxruntime only when there is a model to write
    from edgefl.delivery.quantise import quantised  # noqa: PLC0415

    if out.is_dir():
        raise ConfigError(f"{out}: is a folder; name the file to write, e.g. {out / 'model.onnx'}")
    if out.suffix != ".onnx":
        raise ConfigError(f"{out}: only ONNX can be written; name it e.g. {out.with_suffix('.onnx').name}")
    trained = _of_network(read(source, best=best), network)
    plain = _model(trained)
    model = statistics.raw_units(plain, trained.normalise)
    test, untested = _test(trained, root, own)
    x = made_up(model, trained.sample, tokens=plain.reads_tokens(trained.sample)) if test is None else test.x[:SHOWN]
    params, what = trained.params, (trained.run.task.model, trained.sample, trained.outputs, trained.run.run.seed)
    bundle, rows = unpack(export_graphs(*what, like=x, form=trained.form)), trained.form
    parity = gap = deploy.save_onnx(out, bundle, model, params, x=x, facts=trained.facts, private=False, form=rows)
    float_bytes = out.stat().st_size
    int8_bytes = None
    if int8:
        small = deploy.with_card(quantised(out.read_bytes()), {**trained.facts, "weights": "int8"})
        int8_bytes = len(small)
        int8 = int8_bytes < float_bytes  # each matrix needs more operators: a small one does not repay them
    if int8:
        gap = deploy.difference(small, model, params, x, trained.form)
        store.write_atomically(out, small, private=False)
    exported = Exported(
        out,
        trained.run.run.name,
        trained.round,
        out.stat().st_size,
        float_bytes,
        int8,
        parity,
        gap,
        len(x),
        untested=untested,
        int8_bytes=int8_bytes,
        about=line(trained.facts),
    )
    return exported if test is None else _tried(exported, model, trained, test)


def read(source: Path, *, best: bool = False) -> TrainedModel:
    """The model of a checkpoint; whatever is wrong with the file is said in one line."""
    path = source
    if best and not source.is_dir():
        raise ConfigError(f"{source}: --best chooses among the models of a run; name its folder, e.g. runs/demo")
    if source.is_dir():
        generations = checkpoint.generations(FolderDisk(source))
        if not generations:
            raise ConfigError(f"{source}: holds no checkpoint; name the folder of a run, e.g. runs/demo")
        path = source / (_best(source) if best else generations[-1])
    if not path.is_file():
        raise ConfigError(f"{path}: no such checkpoint; name the folder of a run, e.g. runs/demo")
    try:
        model, about = store.load(path)
        run, unknown = _run(about["run"])
        if best and run.judge != "devices" and run.evaluation.validation is None:
            log.warning("the best model was chosen by the test data: its scores on them are too good")
        return _trained(path, run, model, about, unknown)
    except StoreError as error:
        raise ConfigError(str(error)) from None
    except (KeyError, ValueError, TypeError, AttributeError, RemoteError) as error:
        words = " ".join(str(error).split())
        raise ConfigError(f"{path}: not the checkpoint of a run of this version ({words[:200]})") from None


def _run(table: dict[str, Any]) -> tuple[RunFile, dict[str, str]]:
    """The run file of a checkpoint; where it names code that the operator did not, what has a part in the model.

    With it the names that are left out, as the card has them.
    """
    try:
        return RunFile.model_validate(table), {}
    except CodeRefused:
        names = {"algorithm": str(table["algorithm"]["name"]), "loss_function": str(table["task"]["loss"])}
        task = {key: value for key, value in table["task"].items() if key != "augment"}
        if ":" in names["loss_function"]:
            del task["loss"]
            task |= {"loss": "squared_error"} if task.get("targets") is not None else {}
        parts = {key: table[key] for key in ("run", "data", "evaluation") if key in table}
        return RunFile.model_validate({**parts, "task": task, "rounds": {"cohort": 1, "quorum": 1}}), names


def _of_network(trained: TrainedModel, network: str | None) -> TrainedModel:
    """The same, once the operator's network is seen to be the one that the file names."""
    task = trained.run.task
    if network is None or network == task.model:
        return trained
    if not is_yours(task.model):  # an object of a Python program has no place that could be the same
        raise ConfigError(
            f"{trained.path}: was trained with task.model = '{task.model}', and you name '{network}': name the same"
        )
    run = trained.run.model_copy(update={"task": task.model_copy(update={"model": network})})
    return replace(trained, run=run)


def _best(folder: Path) -> str:
    try:
        return checkpoint.best(FolderDisk(folder))
    except StoreError as error:
        raise ConfigError(f"{error}; without --best the last model is exported") from None


def _trained(path: Path, run: RunFile, model: State, about: dict[str, Any], unknown: dict[str, str]) -> TrainedModel:
    rows = checked(form.read(about["form"]))
    params = checkpoint.params(FolderDisk(path.parent), path.name, model, about)
    sample = tuple(int(size) for size in about["sample"])
    facts = card(
        run,
        round=about["round"],
        sha256=about["sha256"],
        sample=sample,
        classes=about["classes"],
        class_names=about["class_names"],
        targets=about["targets"],
        target_names=about["target_names"],
        scores=upgraded(about["scores"]),
        origin=None if about["from"] is None else Origin(**about["from"]),
        normalise=(known := statistics.read(about["normalise"])),
        form=rows,
    )
    outputs, layout = (int(about["classes"]), int(about["targets"])), about["layout"]
    facts |= unknown
    return TrainedModel(path, run, about["round"], params, sample, *outputs, layout, model, facts, known, rows)


def _model(trained: TrainedModel) -> "TorchModel":
    """The network of a checkpoint: of sizes that its tensors have, which is seen before there is memory for it."""
    task = trained.run.task
    what = task.model, trained.sample, trained.outputs, trained.run.run.seed
    for where, numbers, most in (("a sample", prod(trained.sample), LARGEST), ("an output", trained.outputs, WIDEST)):
        if numbers > most:
            raise ConfigError(f"{trained.path}: {where} of {numbers} numbers; {most} are the most")
    try:
        expected = made_without_memory(*what, trained.form)
        if (
            expected is not None
            and [list(expected), [list(shape) for shape in expected.values()]] != trained.layout[:2]
        ):
            raise ConfigError(_other_tensors(trained, ""))
        model, _ = build(*what, device="cpu", form=trained.form)
    except CodeRefused:
        raise CodeRefused(
            f"{trained.path}: its network '{shown(task.model)}' is code, and a checkpoint is not asked which code to"
            " run: name it yourself with --model package.module:factory, or the run file with --run run.toml"
        ) from None
    except (RuntimeError, MemoryError) as error:  # of torch, which has no memory for it
        raise ConfigError(f"{trained.path}: task.model = '{task.model}' cannot be made here ({error})") from None
    here = checkpoint.described(model.layout)
    if trained.layout != here:
        raise ConfigError(
            _other_tensors(
                trained,
                f" ({checkpoint.fingerprint(trained.layout)} there, {checkpoint.fingerprint(here)} here)",
            )
        )
    if changed := frozen_otherwise(trained.tensors, model, trained.params):
        raise ConfigError(
            f"{trained.path}: what is frozen in '{changed}' is not what task.model = '{task.model}' makes here;"
            " export with the code and torch it was trained with"
        )
    return model


def _other_tensors(trained: TrainedModel, which: str) -> str:
    return (
        f"{trained.path}: holds other tensors than task.model = '{trained.run.task.model}' makes here{which};"
        " export with the model's code it was trained with"
    )


def _test(trained: TrainedModel, root: Path | None, own: RunFile | None) -> tuple[Dataset | None, str]:
    """The run's test data, or why they are not at hand: the model can be exported without them."""
    run, data = trained.run, trained.run.task.data or ""
    if (loss := trained.facts["loss_function"]) != run.task.loss:
        return None, f"its loss '{loss}' is code: name the run file with --run run.toml"
    if own is not None:
        run = run.model_copy(update={"data": own.data, "task": run.task.model_copy(update={"data": own.task.data})})
    elif files.is_file(data):
        return None, f"its data '{data}' are files, which a checkpoint does not choose: name the run file with --run"
    else:
        run = run.model_copy(update={"data": Reading()})  # how much may be read is not the file's choice either
    try:
        test = jobs.split(run, root).test
    except EdgeflError as error:
        return None, f"{error} (relative paths count from the current folder here)"
    if not len(test):
        return None, "the run has no test data"
    labels = test.classes > trained.classes or (not trained.form.kind and test.targets != trained.targets)
    if test.shape != trained.sample or labels:
        return None, f"the run's test data have {'other labels' if labels else 'another shape'} now"
    return test, ""


def reads_tokens(job: Job) -> bool:
    """Whether the samples of a run's network are rows of token ids."""
    if job.graphs is not None:
        return unpack(job.graphs).dtype == "int64"
    built, _ = build(job.run.task.model, job.sample, job.outputs, job.run.run.seed, device="cpu", form=job.form)
    return built.reads_tokens(job.sample)


def _tried(exported: Exported, model: Model, trained: TrainedModel, test: Dataset) -> Exported:
    before = metrics.evaluate(model, trained.params, test, trained.form.loss(losses.loss(trained.run.task.loss)))
    after = judge(Deployed(exported.path, memory=1 << 62), test)
    return replace(exported, scores=before.scores, exported_scores=after.scores, tested=len(test))
