"""A run ends with the round that has spent its budget, in every driver alike; models may be looked at now and then."""

from typing import Any

import pytest

from edgefl.base.errors import ConfigError
from edgefl.base.events import Done, Fact, Round
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.lab.comparison.preparing import Preparation
from edgefl.learn.evaluation.judged_rounds import judged_rounds
from edgefl.sim.drivers import play
from edgefl.system.hardware.profiles import PROFILES, Hardware

TABLE: dict[str, Any] = {
    "run": {"name": "tiny", "rounds": 6, "seed": 4},
    "task": {
        "data": "synthetic",
        "model": "softmax",
        "backend": "torch",
        "partition": {"kind": "iid", "devices": 5},
    },
    "algorithm": {"name": "fedavg", "batches": 2},
    "rounds": {"cohort": 2},
}
PIS = {"profiles": {"pi3": 2, "pi4": 3}}


@pytest.fixture(scope="module")
def prepared():
    return Preparation()


def told(prepared: Any, **sections: Any) -> tuple[list[Round], Done]:
    facts = list[Fact]()
    play(parse(RunFile, {**TABLE, **sections}, "run.toml"), None, facts.append, prepare=prepared)
    rounds = [fact for fact in facts if isinstance(fact, Round)]
    (done,) = [fact for fact in facts if isinstance(fact, Done)]
    return rounds, done


def test_bytes_end_a_run_after_the_same_round_in_both_drivers(prepared: Any):
    rounds, _ = told(prepared)
    allowed = sum(report.bytes_up + report.bytes_down for report in rounds[:3]) / 1e6
    ends = [told(prepared, budget={"megabytes": allowed}, **more)[1] for more in ({}, {"fleet": PIS})]
    assert [end.rounds for end in ends] == [3, 3]
    assert ends[0].model_sha256 == ends[1].model_sha256
    assert {end.stopped for end in ends} == {f"the budget of {allowed:g} MB is spent"}
    assert all(end.accuracy is not None for end in ends)


def test_a_free_round_is_still_played_when_the_budget_is_spent(prepared: Any):
    table = {"algorithm": {"name": "upcycled", "batches": 2}}
    rounds, _ = told(prepared, **table)
    allowed = {"megabytes": (rounds[0].bytes_up + rounds[0].bytes_down) / 1e6}
    ends = [told(prepared, budget=allowed, **table, **more)[1] for more in ({}, {"fleet": PIS})]
    assert [end.rounds for end in ends] == [2, 2]
    assert ends[0].model_sha256 == ends[1].model_sha256


@pytest.mark.parametrize(("key", "field"), [("seconds", "virtual_seconds"), ("joules", "joules")])
def test_virtual_time_and_energy_end_a_run_of_an_emulated_fleet(prepared: Any, key: str, field: str):
    rounds, whole = told(prepared, fleet=PIS)
    assert sum(getattr(report, field) for report in rounds) == pytest.approx(getattr(whole, field))
    allowed = getattr(rounds[0], field) + getattr(rounds[1], field) / 2
    _, done = told(prepared, fleet=PIS, budget={key: allowed})
    assert (done.rounds, done.stopped.split(" is ")[1]) == (2, "spent")
    _, done = told(prepared, fleet=PIS, budget={key: getattr(whole, field) * 0.99})
    assert (done.rounds, done.stopped) == (6, ""), "the last round needs no excuse"


def test_time_and_energy_are_nothing_to_a_plain_loop(prepared: Any):
    with pytest.raises(ConfigError, match="need a virtual clock"):
        told(prepared, budget={"joules": 5.0})


def test_energy_is_watts_times_seconds_of_work_and_of_sending():
    pi4 = Hardware(PROFILES["pi4"], 0.01)
    assert pi4.training_joules(10) == 60
    assert pi4.radio_joules(up=25 * 125_000, down=50 * 125_000) == pytest.approx(2.0)
    assert Hardware(PROFILES["ideal"], 0.01).radio_joules(up=1e9) == 0


def test_every_nth_model_is_looked_at_and_the_last_one_whatever_ends_the_run(prepared: Any):
    rounds, done = told(prepared, evaluation={"every": 4})
    assert [report.accuracy is not None for report in rounds] == [False, False, False, True, False, True]
    allowed = {"megabytes": sum(report.bytes_up + report.bytes_down for report in rounds[:2]) / 1e6}
    rounds, done = told(prepared, evaluation={"every": 4}, budget=allowed)
    assert (done.rounds, done.accuracy is not None) == (2, True)
    assert [report.loss is not None for report in judged_rounds([*rounds, done])] == [False, True]


def test_patience_counts_the_models_that_were_looked_at(prepared: Any):
    table = {"run": {**TABLE["run"], "rounds": 12}, "algorithm": {"name": "fedavg", "lr": 1e-9}}
    rounds, done = told(prepared, **table, evaluation={"every": 4, "patience": 5})
    assert (len(rounds), done.stopped) == (8, "no model was better for 5 rounds")


def test_a_fleet_refuses_what_only_a_simulation_can_do():
    for sections in ({"budget": {"megabytes": 1.0}}, {"evaluation": {"validation": 0.2}}):
        with pytest.raises(ConfigError, match="is for simulations"):
            parse(RunFile, {**TABLE, **sections}, "run.toml").refuse_simulated_only()


def test_forgetting_from_one_round_to_the_next_needs_every_model():
    with pytest.raises(ConfigError, match="leaves some out; set it to 1"):
        parse(RunFile, {**TABLE, "run": {"forgetting": True}, "evaluation": {"every": 2}}, "run.toml")
