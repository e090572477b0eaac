"""MLflow's own client reads what was written, from a SQLite store."""

from pathlib import Path

import pytest
from stories import ROUNDS, SEEN, STARTED, STORY

from edgefl.base.events import Failed
from edgefl.job.config.export import Export, Mlflow
from edgefl.watch.exporters.opening import Exporters, flattened

mlflow = pytest.importorskip("mlflow", reason="needs the extra 'mlflow'")
pytestmark = pytest.mark.filterwarnings("ignore")  # of its own making


def export(folder: Path) -> Export:
    return Export(mlflow=Mlflow(tracking_uri=f"sqlite:///{folder}/mlflow.db", experiment="fleets"))


def tell(folder: Path, *facts, past=()) -> None:
    settings = flattened({"algorithm": {"name": "fedgc", "lr": 0.1}, "run": {"rounds": 3, "target_loss": None}})
    exporters = Exporters(export(folder), folder, settings, past=lambda: past)
    for fact in facts:
        exporters(fact)
    for aside in exporters.asides:
        aside.close(seconds=120.0)


def only_run(folder: Path):
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{folder}/mlflow.db")
    (run,) = client.search_runs([client.get_experiment_by_name("fleets").experiment_id])
    return client, run


def test_a_run_has_its_settings_its_curves_and_its_end(tmp_path: Path) -> None:
    tell(tmp_path, *STORY)
    client, run = only_run(tmp_path)
    assert run.data.params == {"algorithm.name": "fedgc", "algorithm.lr": "0.1", "run.rounds": "3"}
    assert (run.info.run_name, run.info.status) == ("sensors", "FINISHED")
    assert run.data.tags["edgefl.model_sha256"] == "ab" * 32
    history = client.get_metric_history(run.info.run_id, "accuracy")
    assert [(one.step, one.value, one.timestamp) for one in history] == [
        (1, 0.5, 1_010_000),
        (2, 0.625, 1_020_000),
        (3, 0.75, 1_030_000),
    ]
    assert run.data.metrics["per_class/walking 100_"] == 0.5
    assert [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, "fleet/accuracy")] == [(2, 0.5)]


def test_a_restart_goes_on_with_the_same_run_and_no_round_is_there_twice(tmp_path: Path) -> None:
    tell(tmp_path, STARTED, ROUNDS[0])
    assert only_run(tmp_path)[1].info.status == "RUNNING"
    tell(tmp_path, STARTED, *ROUNDS[1:], SEEN, past=ROUNDS[:2])
    client, run = only_run(tmp_path)
    assert [one.step for one in client.get_metric_history(run.info.run_id, "accuracy")] == [1, 2, 3]
    tell(tmp_path, STARTED, Failed("the disk is gone"), past=(*ROUNDS, SEEN))
    client, run = only_run(tmp_path)
    assert [one.step for one in client.get_metric_history(run.info.run_id, "fleet/accuracy")] == [2]
    assert [one.step for one in client.get_metric_history(run.info.run_id, "accuracy")] == [1, 2, 3]
    assert run.info.status == "FAILED"
