"""`edgefl.sweep`: the best setting of each algorithm, chosen on validation data and tested once."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from typing_extensions import Unpack

from edgefl.base.errors import ConfigError
from edgefl.job.config.reader import toml_value
from edgefl.lab.api.compared import Comparison, chosen_values, edges_of
from edgefl.lab.api.data import DataLike
from edgefl.lab.api.description import Description, Setup, described
from edgefl.lab.api.entries import Algorithms, Grid, check_seeds, families_of
from edgefl.lab.api.history import frame
from edgefl.lab.api.keywords import explained
from edgefl.lab.api.playing import surroundings
from edgefl.lab.comparison import sweep as sweeps
from edgefl.lab.comparison.comparison import LEVELS
from edgefl.learn.models.user_networks import ModelLike
from edgefl.learn.session_objects import holding


@dataclass(frozen=True, slots=True, repr=False)
class Sweep:
    """What was chosen, by what, and how good that is on test data that played no part in the choice.

    >>> import edgefl
    >>> given = {"grid": {"lr": [0.001, 0.1]}, "fleet": 4, "rounds": 2, "progress": False}
    >>> sweep = edgefl.sweep("softmax", "digits", algorithms="fedavg", **given)
    >>> [(record["lr"], record["chosen"]) for record in sweep.records()]
    [(0.001, False), (0.1, True)]
    >>> sweep.tested.histories["fedavg"][0].run["algorithm"]["lr"]
    0.1
    """

    result: sweeps.SweepResult

    @property
    def chosen(self) -> dict[str, dict[str, Any]]:
        """The best values of each algorithm's grid."""
        return chosen_values(self.result.choices)

    @property
    def at_edge(self) -> dict[str, dict[str, str]]:
        """Chosen values at the edge of their grid: of each label the keys, and whether it is the largest or smallest.

        Beyond such a value nothing was tried, so a wider grid may find a better one.
        """
        return edges_of(self.result.choices)

    @property
    def tested(self) -> Comparison:
        """What was chosen, on all training data, judged by the test data."""
        return Comparison(self.result.tested)

    def records(self) -> list[dict[str, Any]]:
        """One record for each setting that was tried: its values, and its score on the validation data.

        `diverged` and `failed` are how many of its seeds did; then `validation` is as bad as can be, -inf or inf.
        """
        return [
            {
                "label": choice.label,
                **{key: toml_value(text) for key, text in trial.setting.values.items()},
                "validation": trial.mean,
                "diverged": len(trial.diverged),
                "failed": len(trial.failed),
                "chosen": trial is choice.chosen,
            }
            for choice in self.result.choices
            for trial in choice.trials
        ]

    def to_frame(self) -> Any:  # Any: a pandas.DataFrame, if pandas is there
        """The records as a `pandas.DataFrame`."""
        return frame(self.records())

    def save(self, folder: str | Path) -> Path:
        """Write page, figures, tables and results.json, as `edgefl sweep` does; gives back the page."""
        return self.result.write(Path(folder))

    def __str__(self) -> str:
        """The tables, in Markdown."""
        return self.result.text()

    __repr__ = __str__

    def _repr_markdown_(self) -> str:  # what notebooks look for
        return str(self)


@explained
def sweep(
    model: ModelLike | None = None,
    data: DataLike | None = None,
    *,
    algorithms: Algorithms,
    grid: Grid | None = None,
    seeds: int = 1,
    tuning_seeds: int = 1,
    validation: float = sweeps.SHARE,
    validation_from: Literal["devices", "public"] = "devices",
    levels: Sequence[float] = LEVELS,
    baseline: str | None = None,
    workers: int = 1,
    progress: bool | None = None,
    folder: str | Path | None = None,
    **run: Unpack[Setup],
) -> Sweep:
    """Choose the best setting of each algorithm on validation data, then test that one alone.

    algorithms  as in `edgefl.compare`; a word may have a grid of its own: "fedprox:mu=0.01|0.1"
    grid        {key: values} for every algorithm that has the key; a key with a dot is any of the run file
    seeds       to test what was chosen with; `tuning_seeds` to choose by
    validation  share of the training data to choose by: each device's, or the coordinator's public data
    folder      keeps finished runs, and what unfinished ones need: after an interruption the same call goes on there
    run         the rest is as in `edgefl.simulate`: test, fleet, rounds, ...

    >>> import edgefl
    >>> given = {"algorithms": ["fedavg", "fedprox:mu=0.1"], "fleet": 4, "rounds": 2, "progress": False}
    >>> sweep = edgefl.sweep("softmax", "digits", grid={"lr": [0.001, 0.1]}, **given)
    >>> sweep.chosen["fedavg"]
    {'lr': 0.1}
    """
    check_seeds(seeds)
    if tuning_seeds > seeds:
        raise ConfigError(f"tuning_seeds = {tuning_seeds} is more than seeds = {seeds}; lower it, or raise that")
    with described(Description(model=model, data=data, **run)) as base, holding() as hold:
        families = families_of(algorithms, grid or {}, base.file, hold)
        runs = [setting.run for family in families for setting in family.settings]
        how: dict[str, Any] = {"seeds": seeds, "tuning_seeds": tuning_seeds, "levels": levels, "baseline": baseline}
        how |= {"validation": validation, "validation_from": validation_from}
        with surroundings(base, runs, workers, progress, folder) as around:
            return Sweep(sweeps.sweep(families, **how, **around))
