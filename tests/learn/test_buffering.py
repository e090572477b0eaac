"""`rounds.mode = "buffered"`: what goes with it, and what an old answer weighs."""

import numpy as np
import pytest
from tiny import clouds, site

from edgefl.base.errors import ConfigError
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.job.run.freshness import aged, freshness
from edgefl.learn.aggregation import Mean, Momentum, merge
from edgefl.learn.algorithms.fedavg import FedAvg
from edgefl.learn.algorithms.registry import ALGORITHMS, STAGES, stage_registry
from edgefl.learn.contract import Budget, Task, Update, traits_of

SITE = site()
START = np.zeros(SITE.model.layout.size, np.float32)
CAN = {"fedavg", "fedprox", "fedavgm", "fedntd", "moon", "fedmlb", "fedreg", "fedadam", "fedyogi", "fedadagrad"}
CAN |= {"fedasync", "fedper", "fedrep", "fedbn", "ditto", "pfedme"}


def a_run(rounds: dict[str, object] | None = None, **tables: object) -> RunFile:
    table = {"rounds": {"mode": "buffered", "concurrency": 8, **(rounds or {})}, **tables}
    return parse(RunFile, table, "run.toml", (), {})


def test_a_quarter_of_those_at_work_make_a_round_unless_said():
    assert (a_run().cohort, a_run().quorum) == (8, 2)
    assert a_run({"buffer": 5}).quorum == 5


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_every_algorithm_can_or_says_why_not(name):
    if name in CAN:
        assert a_run(algorithm={"name": name}).buffered
        return
    with pytest.raises(ConfigError, match="merges answers that began from different models") as refused:
        a_run(algorithm={"name": name})
    assert "does not say" not in str(refused.value), "it says why"


@pytest.mark.parametrize("name", sorted(STAGES))
def test_every_stage_can_or_says_why_not(name):
    traits = traits_of(stage_registry()[name]())
    assert traits.buffered is not bool(traits.one_model)


def test_a_stage_of_somebody_else_has_to_say_that_it_can():
    assert traits_of(Mean()).buffered
    assert not traits_of(object()).buffered


@pytest.mark.parametrize(
    ("rounds", "says"),
    [
        ({"cohort": 4}, "rounds.concurrency says"),
        ({"quorum": 2}, "rounds.buffer says"),
        ({"over_select": 1.3}, "no device is waited for"),
        ({"late": "discount"}, "rounds.staleness says"),
        ({"buffer": 9}, "rounds.buffer = 9 is larger than rounds.concurrency = 8"),
        ({"mode": "synchronous", "cohort": 4, "concurrency": None, "buffer": 2}, "set that too"),
        ({"concurrency": None}, "say how many devices are at work at once"),
    ],
)
def test_keys_of_the_other_mode_are_refused_by_name(rounds, says):
    with pytest.raises((ConfigError, ValueError), match=says):
        a_run({key: value for key, value in {"concurrency": 8, **rounds}.items() if value is not None} | _none(rounds))


def _none(rounds: dict[str, object]) -> dict[str, object]:
    return {key: None for key, value in rounds.items() if value is None}


def test_models_are_kept_for_the_oldest_answer_that_is_welcome():
    with pytest.raises(ConfigError, match=r"rounds\.staleness = 9: .*raise algorithm\.history"):
        a_run({"staleness": 9}, algorithm={"name": "fedasync", "history": 8})
    assert a_run({"staleness": 8, "buffer": 1}, algorithm={"name": "fedasync", "history": 8}).quorum == 1


def test_a_vote_and_a_look_at_every_devices_model_are_refused():
    with pytest.raises(ConfigError, match="one voice whatever its age"):
        a_run(guards={"trust": "majority"})
    with pytest.raises(ConfigError, match=r"run\.forgetting"):
        a_run(run={"forgetting": True})


def test_what_was_written_down_can_be_read_again():
    run = a_run({"staleness": 3})
    assert RunFile.model_validate_json(run.model_dump_json()) == run


# ── what an old answer weighs ────────────────────────────────────────────────────────────────────────────────


def update(delta: float, weight: float) -> Update:
    return Update(np.full_like(START, delta), weight, 1)


def test_an_answer_of_three_rounds_ago_has_half_its_weight():
    assert freshness(0) == 1.0
    assert freshness(3) == 0.5


def test_the_step_is_the_sum_of_what_is_left_over_all_the_weight_there_was():
    updates = {"old": update(1.0, 2.0), "new": update(4.0, 2.0)}
    merged, shrink = aged(updates, {"old": 3, "new": 0})
    after, _ = merge(5, START, merged, stages=(Mean(),), states={}, site=SITE, shrink=shrink)
    assert after == pytest.approx(np.full_like(START, (0.5 * 2 * 1.0 + 2 * 4.0) / 4))


def test_a_buffer_of_old_answers_makes_a_shorter_step_before_any_momentum():
    merged, shrink = aged({"a": update(1.0, 1.0), "b": update(1.0, 5.0)}, {"a": 3, "b": 3})
    stages = (Mean(), Momentum(beta=0.5))
    params, states = merge(1, START, merged, stages=stages, states={}, site=SITE, shrink=shrink)
    assert params == pytest.approx(np.full_like(START, 0.5))
    params, _ = merge(2, params, merged, stages=stages, states=states, site=SITE, shrink=shrink)
    assert params == pytest.approx(np.full_like(START, 0.5 + 0.75))


def test_fresh_answers_are_merged_as_they_are():
    updates = {"a": update(1.0, 1.0), "b": update(2.0, 3.0)}
    assert aged(updates, {"a": 0, "b": 0}) == (updates, 1.0)


def test_an_answer_in_a_buffer_weighs_by_its_samples_unless_told_otherwise():
    """In the paper each of the K answers weighs the same, which is `weights = "uniform"`."""
    task = Task(1, START, Budget())
    sites = [site(clouds(samples)) for samples in (10, 30)]
    told = [FedAvg(**how).train(task, {}, one)[0] for how in ({}, {"weights": "uniform"}) for one in sites]
    assert [update.weight for update in told] == [10.0, 30.0, 1.0, 1.0]
