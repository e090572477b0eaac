"""Raw units and balanced classes: the fleet's own statistics, in the model, the same to the bit in every driver."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from fleets import Fleet, loop, prepared

from coordinator.durable import checkpoint
from coordinator.shell.exporting import export_checkpoint
from device_agent.shell.samples import Samples
from edgefl.base.errors import ConfigError, WireError
from edgefl.base.events import Described, Done, Fact, Round
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.job.run import statistics
from edgefl.job.run.statistics import NAME
from edgefl.job.run.work import NOTHING
from edgefl.learn.contract import Update
from edgefl.sim.loop import simulate
from edgefl.system.disk import FolderDisk
from tools.in_memory_broker import InMemoryBroker


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Samples in raw units (hectopascal, millivolt, a switch that never moves), one class of which is rare."""
    rng = np.random.default_rng(0)
    y = (rng.random(1200) < 0.15).astype(np.int64)
    x = np.stack(
        [
            1013.25 + rng.normal(0, 4, 1200) + 6 * y,
            rng.normal(0, 0.002, 1200) + 0.003 * y,
            np.full(1200, 5.0),
            rng.normal(3e4, 900, 1200),
        ],
        axis=1,
    )
    path = tmp_path_factory.mktemp("raw") / "raw.npz"
    np.savez(path, x=x.astype(np.float32), y=y, classes=np.array(["fine", "worn"]))
    return path


def run(path: Path, *, task: dict[str, Any] | None = None, **more: dict[str, Any]) -> RunFile:
    table: dict[str, Any] = {
        "run": {"name": "raw", "rounds": 4, "seed": 3},
        "task": {
            "data": f"npz:{path}",
            "model": "mlp",
            "normalise": "fleet",
            "class_weights": "balanced",
            "partition": {"kind": "dirichlet", "omega": 5.0, "devices": 4},
            **(task or {}),
        },
        "algorithm": {"name": "fedavg", "lr": 0.1, "epochs": 2},
        "rounds": {"cohort": 3, "quorum": 2, "deadline": 120.0},
        **more,
    }
    return parse(RunFile, table, "test", environment={})


def told(file: RunFile) -> tuple[Any, list[Fact]]:
    job, held = prepared(file)
    facts: list[Fact] = []
    end = simulate(job, dict(zip(jobs.device_names(len(held.devices)), held.devices, strict=True)), facts.append)
    return end, facts


def test_a_model_learns_from_raw_units_that_it_could_not_learn_from_before(raw: Path) -> None:
    end, facts = told(run(raw))
    (described,) = [fact for fact in facts if isinstance(fact, Described)]
    _, held = prepared(run(raw))
    x = np.concatenate([data.x for data in held.devices]).astype(np.float64)
    y = np.concatenate([data.y for data in held.devices])
    assert (described.devices, described.samples, described.features) == (4, len(x), 4)
    assert (np.abs(described.mean - x.mean(axis=0)) <= 0.005 * x.std(axis=0)).all()
    np.testing.assert_allclose(described.deviation, [*x.std(axis=0)[:2], 1.0, x.std(axis=0)[3]], rtol=5e-3)
    assert described.class_counts == tuple(np.bincount(y).tolist())
    done = facts[-1]
    assert isinstance(done, Done)
    assert done.balanced_accuracy > 0.8
    assert [fact.round for fact in facts if isinstance(fact, Round)] == [1, 2, 3, 4]
    assert end.round == 4


def test_without_weights_the_rare_class_is_known_less(raw: Path) -> None:
    balanced = told(run(raw))[1][-1]
    plain = told(run(raw, task={"class_weights": None}))[1][-1]
    heavy = told(run(raw, task={"class_weights": {"worn": 5.0}}))[1][-1]
    assert balanced.per_class[1] > plain.per_class[1]
    assert heavy.per_class[1] > plain.per_class[1]


def test_the_exported_model_takes_raw_units_and_is_as_good_in_plain_onnxruntime(raw: Path, tmp_path: Path) -> None:
    file = run(raw)
    end, facts = told(file)
    job, held = prepared(file)
    checkpoint.save(FolderDisk(tmp_path), job, checkpoint.Checkpoint(end, (), 0, 0))
    exported = export_checkpoint(tmp_path, tmp_path / "model.onnx", own=file)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    (z,) = session.run(["logits"], {"x": held.test.x})
    assert float((z.argmax(axis=1) == held.test.y).mean()) == facts[-1].accuracy
    assert exported.exported_scores["accuracy"] == facts[-1].accuracy
    card = session.get_modelmeta().custom_metadata_map
    assert card["input_units"].startswith("raw")
    assert json.loads(card["input_mean"])[2] == 5.0


def test_a_checkpoint_remembers_what_was_described(raw: Path, tmp_path: Path) -> None:
    file = run(raw)
    end, _ = told(file)
    job, _ = prepared(file)
    checkpoint.save(FolderDisk(tmp_path), job, checkpoint.Checkpoint(end, (), 0, 0))
    back = checkpoint.latest(FolderDisk(tmp_path), job)
    assert back is not None
    assert all(np.array_equal(back.run_state.states[NAME][key], end.states[NAME][key]) for key in end.states[NAME])
    assert back.run_state.evaluation.loss == end.evaluation.loss


@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold", "fedgc"])
@pytest.mark.parametrize("backend", ["onnx", "torch"])
def test_devices_over_a_transport_end_with_the_model_of_the_loop(
    raw: Path, tmp_path: Path, algorithm: str, backend: str
) -> None:
    file = run(raw, task={"backend": backend}, algorithm={"name": algorithm, "lr": 0.05, "epochs": 1})
    fleet = Fleet(file, tmp_path, InMemoryBroker().client)
    fleet.start_all()
    facts: list[dict[str, Any]] = []
    end = fleet.coordinator(facts.append).run()
    fleet.join()
    assert end.sha256() == loop(file).sha256()
    assert [fact["event"] for fact in facts if fact["event"] in {"described", "round"}] == ["described", *["round"] * 4]


def test_a_run_that_goes_on_from_another_keeps_its_units(raw: Path, tmp_path: Path) -> None:
    first = run(raw, run={"name": "first", "rounds": 3, "seed": 3, "folder": str(tmp_path)})
    end, _ = told(first)
    job, _ = prepared(first)
    folder = FolderDisk(tmp_path / "first")
    (tmp_path / "first").mkdir()
    checkpoint.save(folder, job, checkpoint.Checkpoint(end, (), 0, 0))
    again = {"name": "second", "rounds": 1, "seed": 3, "folder": str(tmp_path), "from": "first"}
    job, _ = jobs.prepare(run(raw, run=again))
    state = jobs.begin(job)
    assert state.round == -1
    assert np.array_equal(state.states[NAME]["mean"], end.states[NAME]["mean"])
    with pytest.raises(ConfigError, match=r"set task.normalise = 'fleet' here too"):
        jobs.begin(jobs.prepare(run(raw, run=again, task={"normalise": "none", "class_weights": None}))[0])


@pytest.mark.parametrize(
    ("task", "more", "message"),
    [
        ({"class_weights": {"torn": 2.0}}, {}, "names 'torn', which is no class of the run"),
        ({"class_weights": {"worn": 0.0}}, {}, "class_weights"),
        ({"loss": "squared_error", "classes": 0, "class_weights": "balanced"}, {}, "cannot weigh them"),
        ({"data": "sent140"}, {}, "token numbers"),
        (
            {"model": "softmax", "class_weights": None},
            {"algorithm": {"name": "upcycled"}, "privacy": {"mechanism": "output"}},
            "it send sums over its data",
        ),
    ],
)
def test_what_cannot_work_is_refused(raw: Path, task: dict[str, Any], more: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        jobs.prepare(run(raw, task=task, **more))
    if "EDGEFL_DATA" in str(error.value):
        pytest.skip("sent140 is not here")
    assert message in str(error.value)


def test_a_device_whose_operator_does_not_want_it_says_nothing_and_trains_all_the_same(
    raw: Path, tmp_path: Path
) -> None:
    file = run(raw, rounds={"cohort": 4, "quorum": 4, "deadline": 120.0})
    fleet = Fleet(file, tmp_path, InMemoryBroker().client)
    names = list(fleet.data)
    for name in names:
        fleet.start(fleet.agent(name, Samples(fleet.data[name], describes=name != names[0])))
    facts: list[dict[str, Any]] = []
    fleet.coordinator(facts.append).run()
    fleet.join()
    (described,) = [fact for fact in facts if fact["event"] == "described"]
    others = [fleet.data[name] for name in names[1:]]
    assert (described["devices"], described["silent"]) == (3, 1)
    assert described["samples"] == sum(map(len, others))
    assert [fact["devices"] for fact in facts if fact["event"] == "round"] == [4] * 4


def test_what_a_device_cannot_have_counted_is_refused_at_the_door(raw: Path) -> None:
    file = run(raw)
    job, held = prepared(file)
    honest = statistics.answer(held.devices[0], statistics.asked(file.task))
    statistics.check(file.task, honest, job.sample, job.classes)
    for lie in ({"squares": np.full(4, -1.0)}, {"mean": np.full(4, np.inf)}, {"classes": np.array([1, 1])}):
        with pytest.raises(WireError, match=r"update|numbers|samples"):
            statistics.check(file.task, {**honest, **lie}, job.sample, job.classes)
    with pytest.raises(WireError, match="expected samples, mean and squares of 4 features, 2 classes"):
        statistics.check(file.task, {}, job.sample, job.classes)


def test_what_devices_said_gives_the_same_numbers_whoever_spoke_first(raw: Path) -> None:
    file = run(raw)
    assert jobs.begin(prepared(file)[0]).round == -1
    end, _ = told(file)
    job, held = prepared(file)
    answers = {
        name: Update(NOTHING, 1.0, 0, statistics.answer(data, statistics.asked(file.task)))
        for name, data in zip(jobs.device_names(4), held.devices, strict=True)
    }
    one = jobs.described(job, jobs.begin(job), answers)
    other = jobs.described(job, jobs.begin(job), dict(reversed(answers.items())))
    for key in one.states[NAME]:
        assert np.array_equal(one.states[NAME][key], other.states[NAME][key])
        assert np.array_equal(one.states[NAME][key], end.states[NAME][key])
