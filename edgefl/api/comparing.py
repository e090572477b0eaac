"""`edgefl.compare`: several algorithms on the same run and the same devices, with several seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from typing_extensions import Unpack

from edgefl.api.algorithm import AlgorithmLike, algorithm_table
from edgefl.api.data import DataLike
from edgefl.api.description import ORIGIN, Described, Description, Setup, described
from edgefl.api.history import History, frame
from edgefl.comparison import comparison
from edgefl.comparison.comparison import LEVELS
from edgefl.comparison.preparing import Preparation, briefly
from edgefl.comparison.progress import watching
from edgefl.comparison.significance import Standing
from edgefl.comparison.variants import Variant, variant
from edgefl.config.reader import parse
from edgefl.config.schema import RunFile
from edgefl.errors import ConfigError
from edgefl.events import Done, Tell
from edgefl.models.given import ModelLike
from edgefl.simulation.drivers import play
from edgefl.yours import Hold, holding, only_here

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Algorithms: TypeAlias = str | Sequence[AlgorithmLike] | Mapping[str, AlgorithmLike]


@dataclass(frozen=True, slots=True)
class Comparison:
    """What came of a comparison: every run's history by label, and the numbers that papers print."""

    result: comparison.Comparison

    @property
    def histories(self) -> dict[str, list[History]]:
        """Every run that came to its end, by label, a history for each seed; their models are not kept."""
        runs = {one.label: one.run.model_dump(mode="json") for one in self.result.variants}
        by_label: dict[str, list[History]] = {}
        for played in self.result.played:
            table = {**runs[played.label], "run": {**runs[played.label]["run"], "seed": played.seed}}
            by_label.setdefault(played.label, []).append(History(table, (*played.rounds, played.done), {}))
        return by_label

    @property
    def failed(self) -> dict[tuple[str, int], str]:
        """Why runs did not come to their end, by label and seed."""
        return {(one.label, one.seed): one.why for one in self.result.failed}

    def standings(self) -> list[Standing]:
        """Mean, deviation, 95 % interval and a paired test against the baseline, for each label."""
        return self.result.standings()

    def records(self) -> list[dict[str, Any]]:
        """One record for each round of each run, with its label and seed."""
        histories = ((label, one) for label, runs in self.histories.items() for one in runs)
        return [
            {"label": label, "seed": history.run["run"]["seed"], **record}
            for label, history in histories
            for record in history.records()
        ]

    def to_frame(self) -> Any:  # Any: a pandas.DataFrame, if pandas is there
        """The records as a `pandas.DataFrame`."""
        return frame(self.records())

    def plot(self, file: str | Path | None = None, *, what: str | None = None, over: str = "round") -> "Figure":
        """A figure of one curve: of each label the mean of its seeds, in a band; with `file`, written there as well."""
        from edgefl.api.figure import curves, written  # noqa: PLC0415 - brings matplotlib

        if not self.histories:
            raise ConfigError(f"no run came to its end: {next(iter(self.failed.values()), 'nothing was played')}")
        return written(curves(self.histories, what=what, over=over), file)

    def save(self, folder: str | Path) -> Path:
        """Write page, figures, tables and results.json, as `edgefl compare` does; gives back the page."""
        return self.result.write(Path(folder))

    def __str__(self) -> str:
        """The tables, in Markdown."""
        return self.result.text()


def compare(
    model: ModelLike | None = None,
    data: DataLike | None = None,
    *,
    algorithms: Algorithms,
    seeds: int = 1,
    levels: Sequence[float] = LEVELS,
    baseline: str | None = None,
    workers: int = 1,
    progress: bool | None = None,
    **run: Unpack[Setup],
) -> Comparison:
    """Play one run with several algorithms, each with so many seeds.

    algorithms  a list, or {label: algorithm}, of what `edgefl.simulate` takes; words may add stages and keys of the run
                as on the command line ("ft=fedavg+finetune", "up=upcycled:run.rounds=40")
    levels      accuracies whose rounds are counted
    baseline    the label that the others are tested against; the first unless said
    workers     runs that are played at the same time, in processes of their own
    run         the rest is as in `edgefl.simulate`: test, fleet, rounds, ...

    What all device halves share (lr, batch, epochs) is as `algorithm` has it where a word does not say otherwise.

    >>> import edgefl
    >>> both = ["fedavg", "fedprox:mu=0.1"]
    >>> comparison = edgefl.compare("softmax", "digits", algorithms=both, fleet=4, rounds=2, progress=False)
    >>> sorted(comparison.histories)
    ['fedavg', 'fedprox:mu=0.1']
    """
    with described(Description(model=model, data=data, **run)) as base, holding() as hold:
        chosen = [_variant(label, one, base.file, hold) for label, one in labelled(algorithms)]
        check_labels([one.label for one in chosen])
        around = surroundings(base, [one.run for one in chosen], workers, progress)
        return Comparison(comparison.compare(chosen, seeds=seeds, levels=levels, baseline=baseline, **around))


def surroundings(base: Described, runs: Sequence[RunFile], workers: int, progress: bool | None) -> dict[str, Any]:
    """Where and before whose eyes runs are played; a ConfigError if that cannot be."""
    stuck = [name for run in runs for name in only_here(run.model_dump())]
    if workers > 1 and stuck:
        raise ConfigError(
            f"workers = {workers} plays runs in other processes, which do not find {stuck[0].partition(':')[2]}: put it"
            " into a module and name it 'package.module:name', or leave workers out"
        )
    preparation = Preparation()  # of this call: what is only here may be something else in the next, by the same name
    return {
        "workers": workers,
        "root": base.root,
        "watching": None if progress is False else watching,
        "play": partial(_play, preparation) if workers == 1 else None,
        "attempt": partial(_attempt, preparation) if workers == 1 else None,
    }


def labelled(algorithms: Algorithms) -> list[tuple[str | None, AlgorithmLike]]:
    """Each algorithm, with the label that was given to it."""
    if isinstance(algorithms, str):
        return [(None, word.strip()) for word in algorithms.split(",") if word.strip()]
    if isinstance(algorithms, Mapping):
        return list(algorithms.items())
    return [(None, one) for one in algorithms]


def changed(base: RunFile, table: Mapping[str, Any], label: str, sets: Sequence[str] = ()) -> RunFile:
    """The run with another `[algorithm]`, whose stages are its own, and with these keys set."""
    tables = {**base.model_dump(exclude_none=True), "algorithm": dict(table), "aggregation": ()}
    return parse(RunFile, tables, f"{ORIGIN}, {label}", sets, environment={})


def own_label(table: Mapping[str, Any]) -> str:
    """What an algorithm is called that was not given a label."""
    return str(table["name"]).rpartition(":")[2]


def _variant(label: str | None, algorithm: AlgorithmLike, base: RunFile, hold: Hold) -> Variant:
    """One curve: a word as on the command line, or whatever else is an algorithm."""
    if isinstance(algorithm, str):
        chosen = variant(algorithm, base, ORIGIN)
        return chosen if label is None else Variant(label, chosen.run)
    table = algorithm_table(algorithm, hold)
    own = label or own_label(table)
    return Variant(own, changed(base, table, own))


def check_labels(labels: Sequence[str]) -> None:
    """Refuse what nobody could tell apart."""
    if not labels:
        raise ConfigError('algorithms is empty; give at least one, e.g. ["fedavg", "fedprox:mu=0.1"]')
    if twice := [label for label in labels if labels.count(label) > 1]:
        raise ConfigError(f"algorithms: '{twice[0]}' stands there twice; give labels: {{'a': ..., 'b': ...}}")


def _play(preparation: Preparation, run: RunFile, root: Path | None, tell: Tell) -> None:
    play(run, root, tell, prepare=preparation)


def _attempt(preparation: Preparation, run: RunFile, root: Path | None, tell: Tell) -> None:
    briefly(*preparation(run, root))
    tell(Done(run.run.name, "", 0))
