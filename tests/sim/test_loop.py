"""The plain loop: the specification of a run, played with four numbers and three devices."""

import numpy as np
import pytest
from facts import in_short
from tiny import Tiny, clouds

from edgefl.base import seeds
from edgefl.base.events import Answered, Asked, Closed, Done, Evaluating, Fact, Joined, Round
from edgefl.job.config.schema import RunFile
from edgefl.job.run.job import Job
from edgefl.job.run.work import pack_broadcast
from edgefl.learn.algorithms.fedavg import FedAvg
from edgefl.learn.algorithms.fedprox import FedProx
from edgefl.learn.algorithms.registry import describe
from edgefl.learn.algorithms.scaffold import Scaffold
from edgefl.learn.algorithms.upcycled import Upcycled
from edgefl.learn.contract import Algorithm
from edgefl.learn.losses import cross_entropy
from edgefl.sim.device_states import DeviceStates
from edgefl.sim.engines import InProcessEngine
from edgefl.sim.loop import cohort_key, simulate
from edgefl.wire.codecs import CODECS

DEVICES = {f"pi-{i}": clouds(8 + 2 * i, seed=i) for i in range(3)}


def tiny_job(
    algorithm: Algorithm,
    *,
    rounds: int = 3,
    cohort: int = 3,
    seed: int = 7,
    codec: str = "float32",
    compress: bool = False,
    target: float | None = None,
    state_mb: float = 256.0,
) -> Job:
    run = RunFile.model_validate(
        {
            "run": {"name": "tiny", "rounds": rounds, "seed": seed, "target_accuracy": target},
            "algorithm": describe(algorithm),
            "rounds": {"cohort": cohort},
            "wire": {"codec": codec, "compress": compress},
            "compute": {"state_mb": state_mb},
        }
    )
    test = clouds(40, seed=99)
    return Job(
        run=run,
        algorithm=algorithm,
        stages=algorithm.stages(),
        model=Tiny(),
        device_model=Tiny(),
        graphs=None,
        start=np.zeros(4, np.float32),
        loss=cross_entropy,
        up=run.wire.up_codec(),
        down=run.wire.down_codec(),
        sample=(2,),
        classes=2,
        public=test.take(np.arange(0)),
        test=test,
    )


class Listening:
    """The engine of this process, which writes down whom each round asks."""

    def __init__(self, job):
        self.here, self.asked = InProcessEngine(job, DEVICES), []

    def results(self, orders):
        self.asked.append(tuple(order.device for order in orders))
        return self.here.results(orders)


def play(algorithm=None, **more):
    told = []
    run_state = simulate(tiny_job(algorithm or FedAvg(batch=4), **more), DEVICES, in_short(told.append))
    return run_state, told[:-1], told[-1]


@pytest.mark.parametrize("codec", ["float16", "float32", "int8"])
@pytest.mark.parametrize("algorithm", [FedAvg(batch=4), FedProx(batch=4), Upcycled(batch=4)], ids=lambda a: a.name)
def test_the_same_run_ends_with_the_same_model_bit_for_bit(algorithm, codec):
    first, again = play(algorithm, codec=codec)[2], play(algorithm, codec=codec)[2]
    assert first["model_sha256"] == again["model_sha256"]


@pytest.mark.parametrize("codec", ["float32", "int8"])  # whose residual is a state too
def test_what_devices_keep_may_lie_on_disk(codec, monkeypatch):
    files, close = [], DeviceStates.close
    monkeypatch.setattr(DeviceStates, "close", lambda states: (files.append(states.on_disk), close(states)))
    here, there = (play(Scaffold(batch=4), codec=codec, rounds=4, state_mb=mb)[0].sha256() for mb in (256, 0))
    assert here == there
    assert files[0] == 0 < files[1]


def test_another_seed_is_another_run():
    assert play(seed=1)[0].sha256() != play(seed=2)[0].sha256()


def test_every_round_is_told_and_then_the_end():
    run_state, rounds, done = play(rounds=4)
    assert [told["round"] for told in rounds] == [1, 2, 3, 4]
    assert (done["event"], done["rounds"], done["algorithm"], done["run"]) == ("done", 4, "fedavg", "tiny")
    assert done["accuracy"] == rounds[-1]["accuracy"] == run_state.accuracy
    assert done["best_accuracy"] >= max(told["accuracy"] for told in rounds)
    assert done["rounds_to_target"] is None


def test_the_fleet_learns():
    assert play(rounds=6)[0].accuracy == 1.0


def test_bytes_are_those_of_the_frames():
    """Every device of the cohort takes one broadcast; the traffic of a run is that of its rounds."""
    _, rounds, done = play(cohort=2)
    frame = pack_broadcast("tiny", 1, np.zeros(4, np.float32), {}, CODECS["float32"])
    assert rounds[0]["bytes_down"] == 2 * len(frame)
    assert rounds[0]["bytes_up"] > 2 * 4 * 4
    assert done["bytes_up"] == sum(told["bytes_up"] for told in rounds)
    assert done["bytes_down"] == sum(told["bytes_down"] for told in rounds)


def test_a_smaller_codec_sends_fewer_bytes():
    assert play(codec="float16")[2]["bytes_down"] < play(codec="float32")[2]["bytes_down"]


def test_a_compressed_run_of_zeros_is_no_bomb():
    assert play(compress=True)[0].sha256() == play()[0].sha256()


def test_a_round_that_needs_nobody_costs_nothing_and_still_moves_the_model():
    run_state, rounds, _ = play(Upcycled(batch=4), rounds=4)
    assert [told["devices"] > 0 for told in rounds] == [True, False, True, False]
    assert [told["bytes_up"] + told["bytes_down"] > 0 for told in rounds] == [True, False, True, False]
    assert run_state.sha256() != play(Upcycled(batch=4), rounds=3)[0].sha256()


def test_a_run_ends_when_its_target_is_reached():
    run_state, rounds, done = play(rounds=50, target=0.9)
    assert run_state.round == done["rounds_to_target"] == len(rounds) < 50
    assert run_state.accuracy >= 0.9
    assert all(told["accuracy"] < 0.9 for told in rounds[:-1])


@pytest.mark.parametrize("algorithm", [FedAvg(batch=4), FedProx(lr=0.01)], ids=lambda a: a.name)
def test_each_round_asks_the_devices_that_its_seed_draws_whatever_the_algorithm(algorithm):
    job = tiny_job(algorithm, cohort=2, rounds=5)
    engine = Listening(job)
    simulate(job, DEVICES, engine=engine)
    assert engine.asked == [seeds.sample(7, round, DEVICES, 2) for round in (1, 2, 3, 4, 5)]


def test_paired_rounds_share_their_devices():
    assert [cohort_key(tiny_job(FedAvg()), r) for r in (1, 2, 3, 4)] == [1, 2, 3, 4]
    pairs = Upcycled().traits.cohort_rounds
    assert [cohort_key(tiny_job(Upcycled()), r) for r in (1, 2, 3, 4)] == [1 + (r - 1) // pairs for r in (1, 2, 3, 4)]


def test_what_a_coordinator_would_tell_is_told_of_every_round():
    told: list[Fact] = []
    simulate(tiny_job(Upcycled(batch=4), rounds=3), DEVICES, told.append)
    assert isinstance(told[0], Evaluating)
    assert sorted(fact.device for fact in told if isinstance(fact, Joined)) == sorted(DEVICES)
    rounds = [fact for fact in told if isinstance(fact, Asked | Answered | Closed | Round)]
    first = [fact for fact in rounds if fact.round == 1]
    asked, *answered, closed, merged = first
    assert sorted(asked.devices) == sorted(fact.device for fact in answered) == list(closed.devices)
    assert asked.bytes_down == merged.bytes_down
    assert sum(fact.bytes for fact in answered) == merged.bytes_up
    assert all(fact.steps > 0 and fact.verdict == "accepted" for fact in answered)
    assert [type(fact) for fact in rounds if fact.round == 2] == [Round]  # it needs nobody
    assert [fact.opening for fact in rounds if isinstance(fact, Asked)] == [1, 2]
    assert isinstance(told[-1], Done)
    assert all(fact.at > 0 for fact in told)
