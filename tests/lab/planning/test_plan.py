"""The plan of a run: sums that can be checked by hand, and the emulated fleet that it must agree with."""

from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner

from edgefl.base.errors import ConfigError
from edgefl.base.events import Fact, Round
from edgefl.cli.app import app
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.lab.planning.costs import QUANTITIES, Costs
from edgefl.lab.planning.demand import Demand, demand
from edgefl.lab.planning.prediction import concerns, predict
from edgefl.sim.emulator import emulate
from edgefl.system.hardware.profiles import Profile

STEADY = Profile(speed=2.0, up=8.0, down=16.0, latency=0.5, jitter=0)  # 1 MB/s up, 2 MB/s down
DEMAND = Demand(
    *("job", 10, 2, 2, 60.0, 1_000_000, 1.0, 4e6, 4e6),
    enclosed=False,
    steps=10,
    reference=0.2,
    fleet={"steady": 4},
    profiles={"steady": STEADY},
)
FREE = Costs({name: [0.0] * 5 for name in QUANTITIES}, [], {})
SERVER = Costs({**FREE.constants, "coordinator_cpu": [0, 0, 1.0, 0, 0.5], "broker_out": [0, 0, 0, 0, 1.0]}, [], {})


def test_a_device_takes_its_line_and_its_steps():
    prediction = predict(DEMAND, FREE)
    assert prediction.kinds == {"steady": pytest.approx(4 * 0.5 + 2 + 10 * 0.1 + 4)}
    assert prediction.round == pytest.approx(9)
    assert prediction.run == pytest.approx(90)


def test_the_server_adds_what_was_measured_for_so_many_answers_of_that_size():
    prediction = predict(DEMAND, SERVER)
    assert prediction.coordinator_cpu == pytest.approx(2 * 1.0 + 2 * 4.0 * 0.5)
    assert prediction.broker_out == pytest.approx(8)
    assert prediction.round == pytest.approx(9 + 6)
    assert predict(replace(DEMAND, asking=0.5), SERVER).run == pytest.approx(5 * 15)


def test_the_slowest_of_a_cohort_is_waited_for_unless_more_are_asked_than_needed():
    slow = STEADY.model_copy(update={"speed": 0.2})  # ten steps of a second each
    mixed = replace(DEMAND, fleet={"steady": 3, "slow": 1}, profiles={"steady": STEADY, "slow": slow}, asked=4)
    assert predict(replace(mixed, cohort=4), FREE).waiting == pytest.approx(9 + 9)
    assert predict(replace(mixed, cohort=3), FREE).waiting == pytest.approx(9)


def test_a_deadline_that_ends_a_usual_round_is_said():
    hasty = replace(DEMAND, deadline=5.0)
    prediction = predict(hasty, FREE)
    assert (prediction.waiting, prediction.late) == (5.0, True)
    assert any("rounds.deadline" in one for one in concerns(hasty, prediction, 256))


def test_what_to_look_at_is_said_and_nothing_without_a_reason():
    assert not list(concerns(DEMAND, predict(DEMAND, FREE), 256))
    busy = predict(
        replace(DEMAND, down=0, up=0, steps=0), Costs({**FREE.constants, "broker_cpu": [9, 0, 0, 0, 0]}, [], {})
    )
    assert any("server" in one for one in concerns(DEMAND, busy, 256))
    assert any("agent.limit_mb" in one for one in concerns(DEMAND, predict(DEMAND, FREE), 1))


def run_file(**more: Any) -> RunFile:
    table: dict[str, Any] = {
        "run": {"name": "planned", "rounds": 4},
        "task": {
            "data": "synthetic",
            "model": "softmax",
            "backend": "torch",
            "partition": {"kind": "iid", "devices": 6},
        },
        "algorithm": {"name": "fedavg", "batch": 16, "epochs": 2},
        "rounds": {"cohort": 6, "deadline": 600.0},
        "fleet": {"profiles": {"pi3": 2, "pi4": 4}, "ms_per_step": 50.0},
        **more,
    }
    return parse(RunFile, table, "test", environment={})


@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold"])
def test_it_agrees_with_the_emulated_fleet(algorithm: str):
    run = run_file(algorithm={"name": algorithm, "batch": 16, "epochs": 2})
    job, held = jobs.prepare(run)
    rounds: list[Round] = []

    def tell(fact: Fact) -> None:
        if isinstance(fact, Round):
            rounds.append(fact)

    emulate(job, dict(zip(jobs.device_names(6), held.devices, strict=True)), tell)
    planned = demand(run, {}, None)
    assert planned.up == pytest.approx(rounds[-1].bytes_up / 6, rel=0.05)
    assert planned.down == pytest.approx(rounds[-1].bytes_down / 6, rel=0.05)
    usual = sorted(one.virtual_seconds or 0.0 for one in rounds)[len(rounds) // 2]
    assert predict(planned, FREE).round == pytest.approx(usual, rel=0.15)


def test_what_the_file_does_not_say_is_asked_for():
    alone = run_file(task={"data": "synthetic", "model": "softmax", "backend": "torch"}, fleet={})
    with pytest.raises(ConfigError, match="--samples"):
        demand(alone, {"pi4": 6}, None)
    with pytest.raises(ConfigError, match="has 5 devices"):
        demand(alone, {"pi4": 5}, 100)
    with pytest.raises(ConfigError, match="pi4"):
        demand(alone, {"pi44": 6}, 100)
    assert demand(alone, {"pi4": 6}, 100).steps == 13


def test_rounds_that_wait_for_nobody_are_not_predicted():
    waiting_for_nobody = run_file(rounds={"mode": "buffered", "concurrency": 4})
    with pytest.raises(ConfigError, match="buffered"):
        demand(waiting_for_nobody, {}, None)


@pytest.mark.parametrize("words", ["pi4", "pi4=0", "pi4=many"])
def test_a_fleet_has_numbers(words: str, tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("[rounds]\ncohort = 2\n", encoding="utf-8")
    result = CliRunner().invoke(app, ["plan", str(path), "--fleet", words])
    assert isinstance(result.exception, ConfigError)
    assert "how many of each kind" in str(result.exception)
