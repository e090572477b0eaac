"""The device's own models on its disk: replaced whole, bounded in number and size, and read only if they are whole."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from device_agent.durable.own_models import OwnModels, TrainedOwnModel
from edgefl.base.errors import StoreError
from edgefl.base.vector import Layout
from edgefl.wire import chunks
from edgefl.wire.messages import Manifest, Shape
from tools.failing_disk import FailingDisk, PowerCut

LAYOUT = Layout(("w",), ((1000,),))
MANIFEST = Manifest(
    job="j.k", run_id="r", round=1, digest="0" * 64, size=9, layout=Shape.of(LAYOUT), algorithm={"name": "ditto"},
    network="mlp", sample=(3,), classes=2, loss="cross_entropy", codec="float32", seed=1,
)  # fmt: skip
GRAPHS = bytes(range(256)) * 8
FIRST, SECOND = chunks.digest(b"first").hex(), chunks.digest(b"second").hex()


def draft(value: float, run_id: str = "r", round: int = 1) -> TrainedOwnModel:
    manifest = MANIFEST.model_copy(update={"run_id": run_id, "round": round})
    whole = {"own": np.full(1000, value, np.float32), "shared": np.zeros(1000, np.float32)}
    return TrainedOwnModel("pi", manifest, round, GRAPHS, whole)


def value(models: OwnModels, run_key: str = "j.k.r") -> float:
    kept = models.read(run_key)
    assert kept.graphs == GRAPHS
    assert len(set(kept.arrays["own"].tolist())) == 1
    return float(kept.arrays["own"][0])


def replaced(models: OwnModels) -> None:
    models.draft(draft(2.0), SECOND)
    models.settle("j.k.r", SECOND)


def settled(disk: FailingDisk, *values: float) -> OwnModels:
    models = OwnModels(disk)
    for number, one in enumerate(values):
        digest = chunks.digest(bytes([number])).hex()
        models.draft(draft(one, round=number + 1), digest)
        models.settle("j.k.r", digest)
    return models


def test_a_draft_becomes_the_model_when_its_update_is_taken() -> None:
    models = settled(FailingDisk(), 1.0)
    models.draft(draft(2.0, round=2), SECOND)
    assert value(models) == 1.0
    models.settle("j.k.r", SECOND)
    models.settle("j.k.r", SECOND)  # its receipt came twice
    assert value(models) == 2.0
    assert models.runs() == ["j.k.r"]


def test_the_draft_of_an_update_that_was_not_taken_goes_with_the_next_start() -> None:
    disk = FailingDisk()
    models = settled(disk, 1.0)
    models.draft(draft(2.0), FIRST)
    models.draft(draft(3.0), SECOND)
    OwnModels(disk).tidy([SECOND])
    assert len(disk.names("*.draft")) == 1
    models.settle("j.k.r", FIRST)
    assert value(models) == 1.0
    models.settle("j.k.r", SECOND)
    assert value(models) == 3.0


@pytest.mark.parametrize("seed", range(4))
def test_a_power_cut_at_any_step_leaves_the_old_model_or_the_new_one_whole(seed: int) -> None:
    dry = FailingDisk()
    models, before = settled(dry, 1.0), dry.steps
    replaced(models)
    for step in range(dry.steps - before):
        disk = FailingDisk()
        models = settled(disk, 1.0)
        disk.power = step
        with pytest.raises(PowerCut):
            replaced(models)
        disk.crash(Random(seed))
        again = OwnModels(disk)
        again.tidy([SECOND])
        assert value(again) in {1.0, 2.0}
        replaced(again)
        assert value(again) == 2.0


@pytest.mark.parametrize("seed", range(4))
def test_a_model_that_replaced_another_survives_a_power_cut(seed: int) -> None:
    disk = FailingDisk()
    settled(disk, 1.0, 2.0)
    disk.crash(Random(seed))
    assert value(OwnModels(disk)) == 2.0


def test_the_oldest_run_makes_room_with_all_its_files() -> None:
    disk = FailingDisk()
    models = OwnModels(disk, most=2)
    for number in range(4):
        models.renew(draft(number, f"run{number}"))
    assert models.runs() == ["j.k.run3", "j.k.run2"]
    assert len(disk.names()) == 4
    models.renew(draft(9.0, "run2"))
    assert models.runs() == ["j.k.run3", "j.k.run2"], "a model that is replaced makes no run newer"


def test_all_together_are_no_larger_than_the_limit_and_one_that_is_larger_alone_is_not_kept() -> None:
    disk = FailingDisk()
    OwnModels(disk).renew(draft(0.0, "first"))
    one = sum(disk.size(name) or 0 for name in disk.names())
    models = OwnModels(disk, most=9, limit=2 * one + 100)
    for number in range(4):
        models.renew(draft(number, f"run{number}"))
    assert models.runs() == ["j.k.run3", "j.k.run2"]
    assert sum(disk.size(name) or 0 for name in disk.names()) <= 2 * one + 100
    small = OwnModels(FailingDisk(), limit=1000)
    small.renew(draft(1.0))
    assert small.runs() == []


def test_graphs_that_a_run_no_longer_uses_go() -> None:
    disk = FailingDisk()
    models = settled(disk, 1.0)
    models.renew(replace(draft(2.0), graphs=GRAPHS * 2))
    assert len(disk.names("*.graphs")) == 1
    assert models.read("j.k.r").graphs == GRAPHS * 2


def test_a_model_of_other_arrays_than_its_layout_has_is_not_kept() -> None:
    models = OwnModels(FailingDisk())
    own, shared = draft(1.0).arrays["own"], draft(1.0).arrays["shared"]
    for arrays in (
        {"own": own},
        {"own": own[:9], "shared": shared},
        {"own": own.astype(np.float64), "shared": shared},
        {"own": own * np.float32(np.nan), "shared": shared},
        {"own": own, "shared": shared, "mean": own, "scale": own},
        {"own": own, "shared": shared, "more": own},
    ):
        models.renew(replace(draft(1.0), arrays=arrays))
    assert models.runs() == []


def test_what_is_damaged_is_not_used() -> None:
    disk = FailingDisk()
    models = settled(disk, 1.0)
    (graphs,), (name,) = disk.names("*.graphs"), disk.names("*.own")
    disk.write(graphs, GRAPHS[:-1])
    with pytest.raises(StoreError, match="lost or damaged"):
        models.read("j.k.r")
    disk.write(name, (disk.read(name) or b"")[:-1])
    with pytest.raises(StoreError, match="damaged"):
        models.read("j.k.r")
