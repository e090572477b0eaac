"""The best model of a run outlives whatever ends the coordinator, at whichever write."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from fleet import Fleet, run_table

from coordinator.durable import checkpoint
from coordinator.shell.exporting import read
from coordinator.start import BEST_MODEL, MODEL
from edgefl.base.events import Done, Fact
from edgefl.delivery.deployed import Deployed
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.sim.loop import simulate
from edgefl.system.disk import FolderDisk

pytestmark = [pytest.mark.broker, pytest.mark.timeout(200)]

# Too large steps: the score goes up and down, and the best round is in the middle.
UNSTEADY: dict[str, Any] = {"algorithm": {"name": "fedavg", "lr": 30.0, "batch": 64}, "run": {"rounds": 6}}


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with Fleet(tmp_path, **UNSTEADY) as fleet:
        yield fleet


@cache
def undisturbed() -> tuple[int, str, float]:
    """The best round of the plain loop, the hash of its model, and its score."""
    table = run_table(Path("runs"), **UNSTEADY)

    def played(rounds: int) -> Done:
        run = parse(RunFile, {**table, "run": {**table["run"], "rounds": rounds}}, "test", environment={})
        job, held = jobs.prepare(run)
        told: list[Fact] = []
        simulate(job, dict(zip(jobs.device_names(len(held.devices)), held.devices, strict=True)), told.append)
        assert isinstance(told[-1], Done)
        return told[-1]

    whole = played(table["run"]["rounds"])
    assert whole.best_round is not None
    score = whole.best_score["accuracy"]
    assert score is not None
    assert 0 < whole.best_round < table["run"]["rounds"], "choose a run whose best round is not its last"
    return whole.best_round, played(whole.best_round).model_sha256, score


def check(fleet: Fleet) -> None:
    folder = fleet.folder / "runs" / "chaos"
    best_round, sha256, score = undisturbed()
    assert checkpoint.best(FolderDisk(folder)) == checkpoint.BEST
    trained = read(folder, best=True)
    assert (trained.round, trained.facts["model_sha256"]) == (best_round, sha256)
    about = checkpoint.read(FolderDisk(folder), checkpoint.BEST)[1]
    assert about["best"] == {"round": best_round, "score": score}
    assert about["scores"]["accuracy"] == score
    card = Deployed(folder / BEST_MODEL, memory=1 << 62).card
    assert (card["rounds"], card["model_sha256"]) == (str(best_round), sha256)
    assert Deployed(folder / MODEL, memory=1 << 62).card["rounds"] == "6"


@pytest.mark.night
@pytest.mark.parametrize("index", [35, 36, 45])  # around the best model's own file, and long after it
def test_a_coordinator_killed_at_a_write_keeps_its_best_model(index: int, fleet: Fleet) -> None:
    fleet.all_agents()
    life = fleet.coordinator(f"kill:{index}")
    assert life.finished() is None, "it should have been killed"
    fleet.check(fleet.until_done(fleet.coordinator()), f"kill:{index}")
    check(fleet)


def test_where_the_last_model_is_the_best_there_is_no_other(tmp_path: Path) -> None:
    with Fleet(tmp_path) as fleet:
        fleet.all_agents()
        fleet.until_done(fleet.coordinator())
        folder = fleet.folder / "runs" / "chaos"
        best = checkpoint.best(FolderDisk(folder))
        assert (best == checkpoint.BEST) == (folder / checkpoint.BEST).exists() == (folder / BEST_MODEL).exists()
