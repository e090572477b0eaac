"""A fifth of the devices attack: the model of `guards.trust = "majority"` hardly notices; and every stage in real runs.

The attacks and the runs are those of docs/results/robustness.md, on one of its data sets and with a seed of their own.
"""

import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from fleets import Fleet, loop, run_file

from edgefl.job.config.schema import RunFile
from edgefl.sim.loop import simulate
from tools.in_memory_broker import InMemoryBroker

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "results" / "experiments"))
from attacks import ATTACKS, Attack, Attacked, Sight
from robustness import attackers, played, prepared
from robustness_page import Play, Result

SHARE = 0.2
SEED = 1


@cache
def result(defence: str, attack: str = "") -> Result:
    return played(Play("digits", SEED, defence, attack, SHARE if attack else 0.0))


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_fifth_of_attackers_costs_the_majority_at_most_three_points(attack: str) -> None:
    assert result("majority", attack).accuracy >= result("majority").accuracy - 0.03
    assert result("majority", attack).accuracy >= result("none").accuracy - 0.03


@pytest.mark.parametrize("attack", ["weight", "-10x"])
def test_without_a_defence_the_same_attackers_leave_nothing(attack: str) -> None:
    assert result("none", attack).accuracy < 0.5 < result("none").accuracy


def test_an_attack_sees_everybody_and_what_it_sends_is_what_is_merged() -> None:
    sights: list[Sight] = []

    def spy(sight: Sight) -> dict[str, object]:
        sights.append(sight)
        return {}

    job, devices = prepared("digits", SEED)
    few = attackers(Play("digits", SEED, "none", "spy", SHARE), devices)
    assert len(few) == 4
    honest = simulate(job, devices)
    assert simulate(job, devices, engine=Attacked(job, devices, few, Attack(lie=spy))).sha256() == honest.sha256()
    assert set(sights[0].own) == set(few)
    assert set(sights[0].own) | set(sights[0].others) == set(devices)


# ---- the same bits everywhere ----------------------------------------------------------------------------------------

STAGES: dict[str, list[dict[str, object]]] = {
    "median": [{"name": "median"}],
    "trimmed_mean": [{"name": "trimmed_mean", "share": 0.2}],
    "krum": [{"name": "krum", "share": 0.2}],
    "multi_krum": [{"name": "multi_krum", "share": 0.2}, {"name": "sgc"}],
    "geometric_median": [{"name": "geometric_median"}, {"name": "memory"}],
    "norm_clip": [{"name": "norm_clip"}, {"name": "mean"}],
    "majority": [],
}


def run_of(name: str, devices: int = 5) -> RunFile:
    return run_file(
        {"name": "fedavg"},
        task={"partition": {"kind": "dirichlet", "omega": 1.0, "devices": devices}},
        rounds={"cohort": devices, "quorum": devices},
        aggregation=STAGES[name],
        guards={"trust": "majority" if name == "majority" else "devices"},
    )


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_gives_the_same_bits_in_the_loop_and_over_a_transport(name: str, tmp_path: Path) -> None:
    same_everywhere(run_of(name), tmp_path)


def test_so_does_a_majority_of_three_which_is_their_median(tmp_path: Path) -> None:
    run = run_of("majority", devices=3)
    same_everywhere(run, tmp_path)
    assert loop(run).states["median"]["short"] == 0, "three are enough to outvote one"


def same_everywhere(run: RunFile, tmp_path: Path) -> None:
    specified = loop(run)
    fleet = Fleet(run, tmp_path, InMemoryBroker().client)
    fleet.start_all()
    merged = fleet.coordinator().run()
    fleet.join()
    assert merged.sha256() == specified.sha256()
    for stage in run.make_stages():
        for key, array in specified.states[stage.name].items():
            assert np.array_equal(merged.states[stage.name][key], array), (stage.name, key)


def test_no_two_of_them_give_the_same_model() -> None:
    models = {name: loop(run_of(name)).sha256() for name in STAGES}
    assert len(set(models.values())) == len(models)
