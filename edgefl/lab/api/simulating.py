"""`edgefl.simulate`: a run in this process, with your model, your data and your algorithm."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from edgefl.base.errors import ConfigError
from edgefl.base.events import DIVERGED, Done
from edgefl.base.report_numbers import Report
from edgefl.job.config.schema import RunFile
from edgefl.lab.api import progress as progress_bars
from edgefl.lab.api.algorithm import AlgorithmLike
from edgefl.lab.api.data import DataLike
from edgefl.lab.api.description import DescribedRun, Description, described
from edgefl.lab.api.fleet import FleetLike
from edgefl.lab.api.folder import check, keeping, load
from edgefl.lab.api.history import History
from edgefl.lab.api.keywords import explained
from edgefl.lab.api.running import Callback, Running, noted
from edgefl.learn.losses import Loss
from edgefl.learn.models.user_networks import ModelLike
from edgefl.sim import own_models
from edgefl.sim.cautions import cautious, tell_cautions
from edgefl.sim.drivers import play
from edgefl.sim.early_end import StoppedByCallback
from edgefl.sim.own_models import OwnModels

log = logging.getLogger(__name__)


@explained
def simulate(
    model: ModelLike | None = None,
    data: DataLike | None = None,
    *,
    algorithm: AlgorithmLike | None = None,
    fleet: FleetLike | None = None,
    rounds: int | None = None,
    seed: int | None = None,
    test: DataLike | None = None,
    kind: str | None = None,
    loss: str | Loss | None = None,
    backend: Literal["onnx", "torch"] | None = None,
    name: str | None = None,
    settings: Mapping[str, Any] | None = None,
    run_file: str | Path | None = None,
    callbacks: Sequence[Callback] = (),
    workers: int | None = None,
    progress: bool | None = None,
    folder: str | Path | None = None,
    data_root: str | Path | None = None,
) -> History:
    """Play a federated run on this machine; gives back its history, with the model.

    model      an `nn.Module` (the run begins with its weights and leaves it as it is), a class or function that makes
               one, from nothing or from (shape of a sample, number of outputs), or a name: "mlp", "cnn", ...
    data       (x, y), (x, y, group), clients as {name: (x, y)}, a torch Dataset, a Hugging Face dataset, {"train": ...,
               "test": ...} of these, or a name as in a run file: "digits", "csv:log.csv", ...; x may be several arrays,
               as a tuple in the order of the network's arguments or as a dict by their names
    test       the test part; unless given, a fixed fifth of the data (of each client)
    kind       what is learnt, if neither a class nor real numbers: "segmentation", "multilabel", ... (docs/tasks.md)
    algorithm  a name ("fedavg", "fedprox:mu=0.1"), a table, an algorithm, or its class
    fleet      how many devices, or an `edgefl.Fleet`; unless given, one for each client, else ten
    loss       unless given, cross-entropy for classes and the squared error for real numbers
    backend    what devices train with: "onnx" as real ones do, or "torch" for what cannot be exported
    settings   any other key of a run file: {"wire.codec": "int8", "evaluation.on": "devices"}
    run_file   a run file to begin with: what is given here goes over it
    callbacks  functions of (event, run), told everything that happens (`edgefl.events`): run.weights(), run.log(...),
               run.stop(); after an interruption they hear the rounds before it once more (docs/python.md)
    workers    devices that train at the same time; the result is the same
    folder     keeps metrics, checkpoints and what the loggers of `export` write; the same call goes on there after an
               interruption, to the same bits. It is the same as long as model, data and everything else are: otherwise
               it begins anew, and a warning says what has changed
    progress   True, False, or whatever fits the terminal or notebook

    What is not given is as in a run file without it (docs/reference.md). A mistake is an `edgefl.errors.ConfigError`.

    >>> import edgefl, numpy as np
    >>> x = np.random.default_rng(0).normal(size=(200, 4)).astype("float32")
    >>> y = (x.sum(axis=1) > 0).astype(int)
    >>> history = edgefl.simulate("softmax", (x, y), algorithm="fedavg:lr=0.5", fleet=5, rounds=5)
    >>> history.accuracy > 0.8
    True
    """
    given = Description(
        model=model,
        data=data,
        test=test,
        kind=kind,
        algorithm=algorithm,
        fleet=fleet,
        rounds=rounds,
        seed=seed,
        loss=loss,
        backend=backend,
        name=name,
        settings=settings,
        run_file=run_file,
        data_root=data_root,
    )
    with described(given) as run:
        return _played(run, callbacks, workers, progress, None if folder is None else Path(folder))


def _played(
    run: DescribedRun, callbacks: Sequence[Callback], workers: int | None, progress: bool | None, folder: Path | None
) -> History:
    file = _in_this_process(run, workers)
    check(file, folder)
    tell_cautions(file)

    def keep_own(models: OwnModels) -> None:
        running.own_models = models
        if folder is not None:
            own_models.write(folder, models)

    with progress_bars.watching(file.run.rounds, progress) as shown:
        running = Running([shown, *([callbacks] if callable(callbacks) else callbacks)])
        job, held = running.prepare(file, run.root)
        with keeping(job, run.root, running, folder) as (storage, tell):
            how: dict[str, Any] = {"prepare": lambda *_: (job, held), "watch": running.watch, "storage": storage}
            how |= {"keep_own": keep_own}
            try:
                play(file, run.root, cautious(tell), workers=workers, **how)
            except StoppedByCallback as stopped:
                end = running.ended(str(stopped), tell)
                if storage is not None:
                    storage.end(*end)
    facts = tuple(running.facts)
    if isinstance(facts[-1], Done) and facts[-1].stopped == DIVERGED:
        log.warning("the run diverged after %d rounds, which its history has: %s", facts[-1].rounds, facts[-1].why)
    if folder is not None:  # as each was told first
        facts = *(fact for fact in facts if not isinstance(fact, Report)), *load(folder).facts
    what = running.weights(), run.clients, noted(running.logged), running.own_models
    return History(file.model_dump(mode="json"), facts, *what)


def _in_this_process(run: DescribedRun, workers: int | None) -> RunFile:
    """The run file, with an engine that finds what only this process has; a ConfigError if there is none."""
    file, engine = run.file, run.file.compute.engine
    travels = {file.task.data} if file.task.backend == "torch" else {file.task.data, file.task.model}
    stuck = [name for name in run.only_here if name not in travels]
    if not stuck:
        return file
    if engine in {"processes", "ray"}:
        raise ConfigError(
            f"compute.engine = '{engine}' trains in other processes, which do not find {stuck[0].partition(':')[2]}:"
            " put it into a module and import it from there, or leave the engine out"
        )
    if engine == "auto" and (workers or 1) > 1:
        return file.model_copy(update={"compute": file.compute.model_copy(update={"engine": "threads"})})
    return file
