"""TensorBoard's own reader reads what was written; after a restart no round is there twice."""

from pathlib import Path

import pytest
from stories import EVALUATING, ROUNDS, SEEN, STARTED, STORY

from edgefl.job.config.export import Export, TensorBoard
from edgefl.watch.exporters.opening import Exporters
from edgefl.watch.exporters.tensorboard import TensorBoardFiles

pytest.importorskip("tensorboard", reason="needs the extra 'tensorboard'")


def written(folder: Path) -> dict[str, list[tuple[int, float, float]]]:
    """Every curve: step, value, time."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    curves: dict[str, list[tuple[int, float, float]]] = {}
    accumulator = EventAccumulator(str(folder))
    accumulator.Reload()
    for tag in accumulator.Tags()["tensors"]:
        values = [(one.step, float(make_ndarray(one.tensor_proto)), one.wall_time) for one in accumulator.Tensors(tag)]
        curves[tag] = values
    return curves


def test_every_figure_of_a_round_is_a_curve(tmp_path: Path) -> None:
    exporters = Exporters(Export(tensorboard=TensorBoard(folder=tmp_path / "tb")), tmp_path, {})
    for fact in STORY:
        exporters(fact)
    exporters.close()
    curves = written(tmp_path / "tb" / "sensors-1f2e3d4c")
    assert curves["accuracy"] == [(1, 0.5, 1010.0), (2, 0.625, 1020.0), (3, 0.75, 1030.0)]
    assert curves["bytes_up"] == [(1, 100.0, 1010.0), (2, 200.0, 1020.0), (3, 300.0, 1030.0)]
    assert curves["per_class/walking 100%"] == [(2, 0.5, 1020.0), (3, 0.5, 1030.0)]
    assert curves["fleet/accuracy"] == [(2, 0.5, 1029.0)]
    assert curves["fleet/per_class/sitting down"] == [(2, 0.25, 1029.0)]
    assert "rmse" not in curves
    assert "round" not in curves


def test_after_a_restart_rounds_that_were_missed_are_there_and_none_twice(tmp_path: Path) -> None:
    first = TensorBoardFiles(STARTED, tmp_path)
    first(EVALUATING)
    first(ROUNDS[0])
    first.close()
    export = Export(tensorboard=TensorBoard(folder=tmp_path))
    for _ in range(2):
        exporters = Exporters(export, tmp_path, {}, past=lambda: ROUNDS[:2])  # the second was merged, and never told
        for fact in (STARTED, EVALUATING, *ROUNDS[1:], SEEN):
            exporters(fact)
        exporters.close()
    curves = written(tmp_path / "sensors-1f2e3d4c")
    assert [step for step, _, _ in curves["accuracy"]] == [1, 2, 3]
    assert [step for step, _, _ in curves["fleet/accuracy"]] == [2]
