"""What `edgefl.compare` gives back."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefl.base.errors import ConfigError
from edgefl.job.config.reader import toml_value
from edgefl.lab.api.history import History, frame
from edgefl.lab.comparison import comparison
from edgefl.lab.comparison.significance import VariantResult
from edgefl.lab.comparison.sweep import Choice, SweepResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """What came of a comparison: every run's history by label, and the numbers that papers print.

    >>> import edgefl
    >>> given = {"algorithms": ["fedavg", "scaffold"], "seeds": 2, "fleet": 4, "rounds": 2, "progress": False}
    >>> comparison = edgefl.compare("softmax", "digits", **given)
    >>> [history.run["run"]["seed"] for history in comparison.histories["scaffold"]]
    [0, 1]
    >>> [standing.label for standing in comparison.standings()], comparison.chosen
    (['fedavg', 'scaffold'], {})
    """

    result: comparison.ComparisonResult
    choices: tuple[Choice, ...] = ()  # how settings were chosen on validation data, where there was a grid

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
    def chosen(self) -> dict[str, dict[str, Any]]:
        """The best values of each algorithm's grid; empty if there was none."""
        return chosen_values(self.choices)

    @property
    def at_edge(self) -> dict[str, dict[str, str]]:
        """Chosen values at the edge of their grid, as `edgefl.sweep` has them."""
        return edges_of(self.choices)

    @property
    def failed(self) -> dict[tuple[str, int], str]:
        """Why runs did not come to their end, by label and seed; those that diverged are in `diverged`."""
        return {(one.label, one.seed): one.why for one in self.result.failed}

    @property
    def diverged(self) -> dict[tuple[str, int], str]:
        """Where and why learning left the finite numbers, by label and seed; `histories` has the rounds before."""
        return {(one.label, one.seed): one.done.why for one in self.result.played if one.diverged}

    def standings(self) -> list[VariantResult]:
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
        from edgefl.lab.api.figure import curves, written  # noqa: PLC0415 - brings matplotlib

        if not self.histories:
            raise ConfigError(f"no run came to its end: {next(iter(self.failed.values()), 'nothing was played')}")
        return written(curves(self.histories, what=what, over=over), file)

    def save(self, folder: str | Path) -> Path:
        """Write page, figures, tables and results.json, as `edgefl compare` does; gives back the page."""
        return self._report.write(Path(folder))

    def __str__(self) -> str:
        """The tables, in Markdown."""
        return self._report.text()

    __repr__ = __str__

    def _repr_markdown_(self) -> str:  # what notebooks look for
        return str(self)

    @property
    def _report(self) -> "comparison.ComparisonResult | SweepResult":
        return SweepResult(self.choices, self.result) if self.choices else self.result


def chosen_values(choices: Sequence[Choice]) -> dict[str, dict[str, Any]]:
    """What was chosen for each label."""
    return {one.label: {key: toml_value(text) for key, text in one.chosen.setting.values.items()} for one in choices}


def edges_of(choices: Sequence[Choice]) -> dict[str, dict[str, str]]:
    """Which chosen values are the largest or smallest of their grid, for each label that has such."""
    return {one.label: {edge.key: edge.side for edge in one.at_edge} for one in choices if one.at_edge}
