"""What `edgefl.compare` gives back."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefl.api.history import History, frame
from edgefl.comparison import comparison
from edgefl.comparison.significance import Standing
from edgefl.comparison.sweep import Choice, Sweep
from edgefl.config.reader import toml_value
from edgefl.errors import ConfigError

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

    result: comparison.Comparison
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
        return self._report.write(Path(folder))

    def __str__(self) -> str:
        """The tables, in Markdown."""
        return self._report.text()

    __repr__ = __str__

    def _repr_markdown_(self) -> str:  # what notebooks look for
        return str(self)

    @property
    def _report(self) -> "comparison.Comparison | Sweep":
        return Sweep(self.choices, self.result) if self.choices else self.result


def chosen_values(choices: Sequence[Choice]) -> dict[str, dict[str, Any]]:
    """What was chosen for each label."""
    return {one.label: {key: toml_value(text) for key, text in one.chosen.setting.values.items()} for one in choices}
