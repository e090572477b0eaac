"""`edgefl.sweep`: the best setting of each algorithm, chosen on validation data and tested once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

from typing_extensions import Unpack

from edgefl.algorithms import registry
from edgefl.api.algorithm import AlgorithmLike, algorithm_table
from edgefl.api.comparing import Algorithms, Comparison, changed, check_labels, labelled, own_label, surroundings
from edgefl.api.data import DataLike
from edgefl.api.description import ORIGIN, Description, Setup, described
from edgefl.comparison import grid as grids
from edgefl.comparison import sweep as sweeps
from edgefl.comparison.comparison import LEVELS
from edgefl.comparison.grid import Family, Setting
from edgefl.config.reader import toml_value
from edgefl.config.schema import RunFile
from edgefl.errors import ConfigError
from edgefl.models.given import ModelLike
from edgefl.yours import Hold, holding


@dataclass(frozen=True, slots=True)
class Sweep:
    """What was chosen, by what, and how good that is on test data that nobody has chosen by."""

    result: sweeps.Sweep

    @property
    def chosen(self) -> dict[str, dict[str, Any]]:
        """The best values of each algorithm's grid."""
        return {
            one.label: {key: toml_value(text) for key, text in one.chosen.setting.values.items()}
            for one in self.result.choices
        }

    @property
    def tested(self) -> Comparison:
        """What was chosen, on all training data, judged by the test data."""
        return Comparison(self.result.tested)

    def records(self) -> list[dict[str, Any]]:
        """One record for each setting that was tried: its values, and its score on the validation data."""
        return [
            {
                "label": choice.label,
                **{key: toml_value(text) for key, text in trial.setting.values.items()},
                "validation": trial.mean,
                "chosen": trial is choice.chosen,
            }
            for choice in self.result.choices
            for trial in choice.trials
        ]

    def save(self, folder: str | Path) -> Path:
        """Write page, figures, tables and results.json, as `edgefl sweep` does; gives back the page."""
        return self.result.write(Path(folder))

    def __str__(self) -> str:
        """The tables, in Markdown."""
        return self.result.text()


def sweep(
    model: ModelLike | None = None,
    data: DataLike | None = None,
    *,
    algorithms: Algorithms,
    grid: Mapping[str, Sequence[Any]] | None = None,
    seeds: int = 1,
    tuning_seeds: int = 1,
    validation: float = sweeps.SHARE,
    validation_from: Literal["devices", "public"] = "devices",
    levels: Sequence[float] = LEVELS,
    baseline: str | None = None,
    workers: int = 1,
    progress: bool | None = None,
    **run: Unpack[Setup],
) -> Sweep:
    """Choose the best setting of each algorithm on validation data, then test that one alone.

    algorithms  as in `edgefl.compare`; a word may have a grid of its own: "fedprox:mu=0.01|0.1"
    grid        {key: values} for every algorithm that has the key; a key with a dot is any of the run file
    seeds       to test what was chosen with; `tuning_seeds` to choose by
    validation  share of the training data to choose by: each device's, or the coordinator's public data
    run         the rest is as in `edgefl.simulate`: test, fleet, rounds, ...

    >>> import edgefl
    >>> given = {"algorithms": ["fedavg", "fedprox:mu=0.1"], "fleet": 4, "rounds": 2, "progress": False}
    >>> sweep = edgefl.sweep("softmax", "digits", grid={"lr": [0.001, 0.1]}, **given)
    >>> sweep.chosen["fedavg"]
    {'lr': 0.1}
    """
    if tuning_seeds > seeds:
        raise ConfigError(f"tuning_seeds = {tuning_seeds} is more than seeds = {seeds}; lower it, or raise that")
    with described(Description(model=model, data=data, **run)) as base, holding() as hold:
        families = [_family(label, one, grid or {}, base.file, hold) for label, one in labelled(algorithms)]
        check_labels([family.label for family in families])
        for key in grid or {}:
            words = [one for _, one in labelled(algorithms) if isinstance(one, str)]
            if not grids.tried(key, families) and not any(grids.has_key(word, key) for word in words):
                raise ConfigError(f"grid: no algorithm has a key '{key}'")
        runs = [setting.run for family in families for setting in family.settings]
        around = surroundings(base, runs, workers, progress)
        return Sweep(
            sweeps.sweep(
                families,
                seeds=seeds,
                tuning_seeds=tuning_seeds,
                validation=validation,
                validation_from=validation_from,
                levels=levels,
                baseline=baseline,
                **around,
            )
        )


def _family(
    label: str | None, algorithm: AlgorithmLike, grid: Mapping[str, Sequence[Any]], base: RunFile, hold: Hold
) -> Family:
    """The settings of one algorithm: a word as on the command line, or whatever else is one."""
    axes = {key: tuple(_text(value) for value in values) for key, values in grid.items()}
    if isinstance(algorithm, str):
        return grids.family(algorithm if label is None else f"{label}={algorithm}", axes, base, ORIGIN)
    table = algorithm_table(algorithm, hold)
    own, kind = label or own_label(table), registry.algorithm_registry().find(table["name"], "algorithm.name")
    known = {key: texts for key, texts in axes.items() if "." in key or key in kind.__dataclass_fields__}
    settings = []
    for point in product(*known.values()):
        values = dict(zip(known, point, strict=True))
        sets = [f"{key if '.' in key else f'algorithm.{key}'}={text}" for key, text in values.items()]
        settings.append(Setting(values, changed(base, table, own, sets)))
    return Family(own, tuple(settings))


def _text(value: Any) -> str:
    """A value as a run file has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
