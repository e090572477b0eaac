"""MLflow: one of its runs for each of ours, found again by our id, with settings, curves and how it ended."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from edgefl.base.events import Done, Evaluated, Evaluating, Fact, Failed, Round, Started
from edgefl.base.report_numbers import LastReports, number
from edgefl.job.config.export import Mlflow
from edgefl.watch.exporters.scalars import scalars

PACKAGE = "mlflow"
RUN_ID = "edgefl.run_id"  # the tag that our runs are found by
LONGEST = 500  # letters of a setting
MOST = 100  # settings that are sent at once
MARKS = {"round": "edgefl_round", "evaluated": "edgefl_evaluated_round"}  # with the figures: the rounds that are there


class MlflowRun:
    """What the server has of a run is asked of the server itself: no round is sent twice."""

    wants: ClassVar[tuple[type[Fact], ...]] = (Evaluating, Round, Evaluated, Done, Failed)

    def __init__(self, started: Started, settings: Mlflow, parameters: Mapping[str, Any]) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # which device trains what stays private
        from mlflow import MlflowClient  # noqa: PLC0415 - only where it is configured

        self.client: Any = MlflowClient(tracking_uri=settings.tracking_uri)  # Any: it has no types
        self.id = self._found(started, settings.experiment) or self._begun(started, settings.experiment, parameters)
        self.client.update_run(self.id, status="RUNNING")
        self.reports = LastReports({kind: self._last(mark) for kind, mark in MARKS.items()})
        self.class_names: Sequence[str] | None = None

    def __call__(self, fact: Fact) -> None:
        match fact:
            case Evaluating(class_names=names):
                self.class_names = names
            case Round(round=round) | Evaluated(round=round) if not self.reports.has(fact):
                figures = {**scalars(fact, self.class_names), MARKS[number(fact)[0]]: float(round)}
                self.client.log_batch(self.id, metrics=self._metrics(figures, round, fact.at))
                self.reports.add(fact)
            case Done(model_sha256=digest):
                self.client.set_tag(self.id, "edgefl.model_sha256", digest)
                self.client.set_terminated(self.id, "FINISHED")
            case Failed():
                self.client.set_terminated(self.id, "FAILED")

    def close(self) -> None:
        """A run that was interrupted goes on with the next start, and is still open there."""

    def _last(self, mark: str) -> int:
        return max((metric.step for metric in self.client.get_metric_history(self.id, mark)), default=-1)

    def _found(self, started: Started, experiment: str) -> str | None:
        known = self.client.get_experiment_by_name(experiment)
        if known is None:
            return None
        ours = self.client.search_runs([known.experiment_id], f"tags.`{RUN_ID}` = '{started.run_id}'", max_results=1)
        return ours[0].info.run_id if ours else None

    def _begun(self, started: Started, experiment: str, parameters: Mapping[str, Any]) -> str:
        from mlflow.entities import Param  # noqa: PLC0415

        known = self.client.get_experiment_by_name(experiment)
        experiment_id = known.experiment_id if known else self.client.create_experiment(experiment)
        tags = {RUN_ID: started.run_id, "mlflow.runName": started.run, "edgefl.algorithm": started.algorithm}
        id: str = self.client.create_run(experiment_id, tags=tags).info.run_id
        named = [Param(key, str(value)[:LONGEST]) for key, value in parameters.items()]
        for first in range(0, len(named), MOST):
            self.client.log_batch(id, params=named[first : first + MOST])
        return id

    def _metrics(self, figures: Mapping[str, float], round: int, at: float) -> list[Any]:
        from mlflow.entities import Metric  # noqa: PLC0415

        return [Metric(_name(name), value, int(1000 * at), round) for name, value in figures.items()]


def _name(name: str) -> str:
    """As MLflow allows it: a class may be called whatever its people call it."""
    return "".join(letter if letter.isascii() and (letter.isalnum() or letter in "_-. /") else "_" for letter in name)
