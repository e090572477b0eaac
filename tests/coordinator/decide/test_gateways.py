"""Which runs take the answer of a gateway, and for how many devices; and the round that it follows to."""

from typing import Any

import pytest

from coordinator.decide.rounds import Abandon, DeviceAnswered, DeviceJoined, Finish, Overtaken, Rounds, Rules, step
from coordinator.shell.gateways import objection
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile


def run(algorithm: str = "fedavg", **more: Any) -> RunFile:
    tables = {"algorithm": {"name": algorithm}, "rounds": {"cohort": 4}, "guards": {"speaks_for": 10}, **more}
    return parse(RunFile, tables, "test", environment={})


@pytest.mark.parametrize("algorithm", ["fedavg", "fedprox", "fedavgm", "upcycled", "mimelite"])
def test_stages_that_a_mean_is_enough_for_take_a_gateway(algorithm: str) -> None:
    assert objection("gw", 10, run(algorithm)) is None


@pytest.mark.parametrize("algorithm", ["fedgc", "gradma", "scaffold", "feddyn", "mifa", "feddf", "fedcurv"])
def test_stages_that_need_every_devices_own_answer_do_not(algorithm: str) -> None:
    against = objection("gw", 10, run(algorithm))
    assert against is not None
    assert against[0] == "gateway.individual"
    assert objection("pi", 1, run(algorithm)) is None, "a device is no gateway"


def test_robust_stages_do_not_take_one_whose_word_nobody_can_outvote() -> None:
    guards = {"speaks_for": 10, "trust": "majority"}
    against = objection("gw", 2, run(guards=guards))
    assert against is not None
    assert against[0] == "gateway.individual"


def test_nobody_speaks_for_more_than_the_operator_allows_which_is_one() -> None:
    for guards, many in (({}, 2), ({"speaks_for": 10}, 11)):
        against = objection("gw", many, run(guards=guards))
        assert against is not None
        assert against[0] == "gateway.many"


def test_a_fleet_that_describes_its_data_is_asked_one_by_one() -> None:
    task = {"data": "synthetic", "model": "softmax", "normalise": "fleet"}
    against = objection("gw", 2, run(task=task))
    assert against is not None
    assert "what its data are like" in against[1]


RULES = Rules(rounds=100, seed=1, cohort=2, quorum=2, deadline=10.0)


def test_a_site_follows_to_the_round_that_is_asked_for_and_gives_up_the_one_in_hand() -> None:
    s = Rounds(RULES)
    for event in (DeviceJoined("a", 0.0), DeviceJoined("b", 0.0), DeviceAnswered("a", 1, 1.0)):
        s, _ = step(s, event)
    s, did = step(s, Overtaken(7, 2.0))
    assert (s.phase, s.round, s.answered) == ("open", 7, frozenset())
    assert did[0] == Abandon(1, "round 7 has begun")
    assert step(s, Overtaken(7, 3.0)) == (s, ()), "it is there already"
    assert step(s, Overtaken(3, 3.0)) == (s, ())


def test_a_round_behind_the_last_one_is_the_end() -> None:
    s, did = step(Rounds(RULES, phase="merging", round=7), Overtaken(101, 2.0))
    assert (s.phase, s.round) == ("finished", 7)
    assert did == (Finish(7),)
