"""One device behind the ACL against four honest ones: whatever it claims, the model is theirs, and none is refused."""

import threading
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fleets import Fleet, loop, prepared, run_file
from puppet import Puppet, answer, noise

from coordinator.durable import checkpoint
from coordinator.shell.threaded import Threaded
from edgefl.base.vector import Array, Vector, norm
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.sim.loop import simulate
from edgefl.system.disk import FolderDisk
from edgefl.wire.messages import Assignment, Presence
from tools.in_memory_broker import InMemoryBroker

BAD = "device-04"
ROUNDS = 6
HONEST = 4

Act = Callable[[Puppet, Assignment, Vector], None]


def run_of(algorithm: str, cohort: int, **rounds: Any) -> RunFile:
    return run_file(
        {"name": algorithm},
        run={"rounds": ROUNDS},
        task={"partition": {"kind": "dirichlet", "omega": 1.0, "devices": HONEST + 1}},
        rounds={"cohort": cohort, "quorum": cohort, "start_with": cohort, **rounds},
    )


@cache
def undisturbed(algorithm: str) -> float:
    job, held = prepared(run_of(algorithm, HONEST))
    devices = dict(zip(jobs.device_names(HONEST), held.devices[:HONEST], strict=True))
    accuracy = simulate(job, devices).accuracy
    assert accuracy is not None
    return accuracy


class Siege:
    """A real coordinator, four real agents and a device that acts on every task."""

    def __init__(self, folder: Path, act: Act, algorithm: str, **rounds: Any) -> None:
        self.events: list[dict[str, Any]] = []
        self.broker = InMemoryBroker()
        run = run_of(algorithm, HONEST + 1, **rounds)
        self.fleet = Fleet(run, folder, self.broker.client)
        del self.fleet.data[BAD]
        self.coordinator: Threaded = self.fleet.coordinator(self.events.append)
        self.puppet = Puppet(BAD, self.broker.client(BAD), self._act(act), job="fleet")
        presence = Presence(online=True, installation=BAD, birth=1, samples=0)
        self.puppet._presence = (  # type: ignore[method-assign]
            lambda online: self.puppet.presence(presence.model_copy(update={"online": online}))
        )

    def _act(self, act: Act) -> Callable[[Puppet, Assignment], None]:
        def with_model(puppet: Puppet, task: Assignment) -> None:
            assert self.coordinator.shell.artifacts.run_state is not None
            act(puppet, task, self.coordinator.shell.artifacts.run_state.params)

        return with_model

    def play(self) -> float:
        thread = threading.Thread(target=self.coordinator.run, daemon=True)
        thread.start()
        self.puppet.start()
        self.fleet.start_all()
        thread.join(120)
        assert not thread.is_alive()
        done = self.told("done")[0]
        assert done["rounds"] == ROUNDS
        accuracy: float = done["accuracy"]
        return accuracy

    def told(self, event: str) -> list[dict[str, Any]]:
        return [one for one in self.events if one["event"] == event]

    def honest_refused(self) -> list[dict[str, Any]]:
        kinds = ("refused", "quarantined", "declined")
        return [one for one in self.events if one["event"] in kinds and one["device"] != BAD]


def arrays(model: Vector, length: float, seed: int, algorithm: str = "fedavg") -> Mapping[str, Array]:
    """An update in a direction of its own, `length` times as long as the model; the same beside it, where wanted."""
    drawn = noise(model.size, seed)
    bad = (drawn * (length * norm(model) / norm(drawn))).astype(np.float32)
    return {"delta": bad, "extra/dc": 100 * bad} if algorithm == "scaffold" else {"delta": bad}


def replacement(puppet: Puppet, task: Assignment, model: Vector) -> None:
    puppet.say(answer(puppet, task, {"delta": arrays(model, 1.0, 7)["delta"] - model}, weight=1e12))


def five_times_the_model(puppet: Puppet, task: Assignment, model: Vector) -> None:
    puppet.say(answer(puppet, task, arrays(model, 5.0, 7)))


def away_from_the_model(puppet: Puppet, task: Assignment, model: Vector) -> None:
    puppet.say(answer(puppet, task, {"delta": -5 * model}, weight=1e12))


def tiny_duplicates(puppet: Puppet, task: Assignment, model: Vector) -> None:
    for _ in range(70):
        puppet.say(answer(puppet, task, arrays(model, 1e-9, 7)))


def tiny_then_huge(puppet: Puppet, task: Assignment, model: Vector) -> None:
    for _ in range(70):
        puppet.say(answer(puppet, task, arrays(model, 1e-9 if task.round < 4 else 5.0, 7), weight=1e12))


ATTACKS: dict[str, Act] = {
    "model replacement": replacement,
    "five times the model": five_times_the_model,
    "away from the model": away_from_the_model,
    "tiny duplicates": tiny_duplicates,
    "tiny, then huge": tiny_then_huge,
}


@pytest.mark.parametrize("act", ATTACKS.values(), ids=ATTACKS)
def test_an_attacker_moves_the_accuracy_by_less_than_three_points(act: Act, tmp_path: Path) -> None:
    siege = Siege(tmp_path, act, "fedavg")
    assert siege.play() == pytest.approx(undisturbed("fedavg"), abs=0.03)
    assert siege.honest_refused() == []
    assert ("accepted", "") in siege.puppet.verdicts, "it took part"
    if act is not tiny_duplicates:
        assert any(BAD in report["bounded"] for report in siege.told("round")), "and it is reported"
    assert {device for report in siege.told("round") for device in report["bounded"]} <= {BAD}


def test_what_is_sent_beside_an_update_is_bounded_too(tmp_path: Path) -> None:
    def act(puppet: Puppet, task: Assignment, model: Vector) -> None:
        puppet.say(answer(puppet, task, arrays(model, 5.0, 7, "scaffold"), weight=1e12))

    siege = Siege(tmp_path, act, "scaffold")
    assert siege.play() == pytest.approx(undisturbed("scaffold"), abs=0.03)
    assert siege.honest_refused() == []
    assert all("extra/dc" in report["bounded"][BAD] for report in siege.told("round"))


ORDINARY = ["fedavg", "scaffold", "gradma", "fedgc", "upcycled", "flashback"]


@pytest.mark.parametrize("algorithm", ORDINARY)
def test_an_ordinary_run_has_the_same_bits_with_and_without_bounds(algorithm: str) -> None:
    off = {"weight_cap": "off", "norm_cap": "off", "extra_cap": "off"}
    task = {"partition": {"kind": "dirichlet", "omega": 0.3, "devices": 10}}
    rounds = {"cohort": 8, "quorum": 8}
    bounded = loop(run_file({"name": algorithm}, task=task, rounds=rounds))
    free = loop(run_file({"name": algorithm}, task=task, rounds=rounds, guards=off))
    assert bounded.sha256() == free.sha256()
    assert "guards" not in free.states


@pytest.mark.parametrize("late", ["drop", "discount"])
def test_bounds_are_the_same_in_the_loop_and_over_a_transport(late: str, tmp_path: Path) -> None:
    tight = {"weight_cap": 1.0, "norm_cap": 1.0, "extra_cap": 1.0}
    rounds = {"cohort": 4, "quorum": 4, "late": late}
    run = run_file({"name": "scaffold"}, rounds=rounds, guards=tight)
    specified = loop(run)
    assert specified.bounded, "somebody is above the median"
    fleet = Fleet(run, tmp_path, InMemoryBroker().client)
    fleet.start_all()
    merged = fleet.coordinator().run()
    fleet.join()
    assert merged.sha256() == specified.sha256()
    assert merged.bounded == specified.bounded
    assert all(
        np.array_equal(merged.states["guards"][name], medians) for name, medians in specified.states["guards"].items()
    )


def test_what_is_usual_survives_a_restart(tmp_path: Path) -> None:
    run = run_file({"name": "fedavg"})
    job, _ = prepared(run)
    run_state = loop(run)
    checkpoint.save(FolderDisk(tmp_path), job, checkpoint.Checkpoint(run_state, (), 0, 0))
    saved = checkpoint.latest(FolderDisk(tmp_path), job)
    assert saved is not None
    known = saved.run_state.states["guards"]
    assert {name: array.tolist() for name, array in known.items()} == {
        name: array.tolist() for name, array in run_state.states["guards"].items()
    }
    assert len(known["delta"]) == 4
