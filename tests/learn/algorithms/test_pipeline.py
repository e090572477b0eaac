"""Device half and server stages: what cannot go together is refused when the run file is read."""

import numpy as np
import pytest
from toys import Linear, dataset, site

from edgefl.base.errors import ConfigError
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.learn.aggregation import Momentum, merge
from edgefl.learn.algorithms import registry
from edgefl.learn.algorithms.gradma import Memory
from edgefl.learn.algorithms.upcycled import Upcycle
from edgefl.learn.contract import Draft, Update

FREE = ["scale", "clip", "momentum", "memory", "sgc", "finetune", "adam", "yogi", "adagrad"]


def read(algorithm: str, *stages: str, **hyper: object) -> RunFile:
    table = {
        "algorithm": {"name": algorithm, **hyper},
        "aggregation": [{"name": stage} for stage in stages],
        "rounds": {"cohort": 2},
    }
    return parse(RunFile, table, "run.toml", environment={})


@pytest.mark.parametrize("algorithm", sorted(set(registry.ALGORITHMS) - {"upcycled"}))
def test_the_push_is_refused_behind_devices_that_train_in_every_round(algorithm):
    with pytest.raises(
        ConfigError, match=f"'upcycle' would throw away what the devices of '{algorithm}' train"
    ) as line:
        read(algorithm, "upcycle")
    assert "\n" not in str(line.value)


def test_the_push_of_the_coordinator_is_refused_beside_that_of_the_devices():
    with pytest.raises(ConfigError, match="would throw away"):
        read("upcycled", "upcycle", even="device")
    read("upcycled", "mean", "momentum", even="device")


@pytest.mark.parametrize("stages", [("mean",), ("momentum",), ("mean", "memory")])
def test_a_pipeline_that_makes_nothing_of_free_rounds_is_refused(stages):
    with pytest.raises(ConfigError, match="asks no device in every second round, and no stage"):
        read("upcycled", *stages)


@pytest.mark.parametrize("stage", sorted(set(registry.STAGES) - {*FREE, "upcycle", "norm_clip"}))
def test_a_stage_that_needs_answers_is_refused_after_the_push(stage):
    with pytest.raises(ConfigError, match=f"'{stage}' needs answers, and algorithm 'upcycled' asks no device"):
        read("upcycled", "upcycle", stage)


@pytest.mark.parametrize("stage", FREE)
def test_the_others_go_with_it(stage):
    assert [each.name for each in read("upcycled", "upcycle", stage).make_stages()] == ["upcycle", stage]


@pytest.mark.parametrize("algorithm", sorted(registry.ALGORITHMS))
def test_every_algorithm_goes_with_its_own_stages(algorithm):
    assert read(algorithm).make_stages()


# ── stages that outvote single devices ───────────────────────────────────────────────────────────────────────

STEPPING = ["median", "trimmed_mean", "krum", "multi_krum", "geometric_median"]
BELIEVING = {
    "scaffold": "control variates",
    "fedcurv": "Fisher information",
    "mimelite": "gradients",
    "flashback": "label counts",
    "feddyn": "counts itself",
}


def vote(algorithm: str, *stages: str, cohort: int = 10, **more: object) -> RunFile:
    table = {
        "algorithm": {"name": algorithm},
        "aggregation": [{"name": stage} for stage in stages],
        "rounds": {"cohort": cohort},
        **more,
    }
    return parse(RunFile, table, "run.toml", environment={})


def refusal(*arguments: str, **more: object) -> str:
    with pytest.raises(ConfigError) as line:
        vote(*arguments, **more)
    assert "\n" not in str(line.value)
    return str(line.value)


@pytest.mark.parametrize("stage", STEPPING)
def test_a_vote_takes_the_place_of_the_mean(stage):
    for algorithm, behind in (("fedavg", ()), ("fedgc", ("sgc",)), ("gradma", ("memory",)), ("feddf", ("ensemble",))):
        assert [each.name for each in vote(algorithm, stage, *behind).make_stages()] == [stage, *behind]


def test_votes_may_follow_each_other_and_clipping_comes_before_any():
    for stages in [
        ("multi_krum", "trimmed_mean"),
        ("norm_clip", "median"),
        ("norm_clip", "mean"),
        ("norm_clip", "krum"),
    ]:
        assert [each.name for each in vote("fedavg", *stages).make_stages()] == [*stages]
    vote("mifa", "norm_clip", "mean", "table")
    vote("upcycled", "norm_clip", "upcycle")


@pytest.mark.parametrize(("algorithm", "what"), BELIEVING.items())
@pytest.mark.parametrize("stage", ["median", "norm_clip"])
def test_a_vote_on_updates_is_refused_where_something_else_is_believed(stage, algorithm, what):
    own = [each.name for each in registry.algorithm({"name": algorithm}).stages() if each.name != "mean"]
    first = ["norm_clip", "mean"] if stage == "norm_clip" else [stage]
    assert f"believes {'that' if algorithm == 'feddyn' else 'the'}" in (line := refusal(algorithm, *first, *own))
    assert what in line


@pytest.mark.parametrize("stage", ["mean", "table"])
def test_a_stage_that_would_throw_the_step_of_a_vote_away_is_refused(stage):
    assert f"'{stage}' would throw away the step that 'krum' makes" in refusal("fedavg", "krum", stage)


def test_a_vote_behind_the_stage_it_should_protect_is_refused():
    assert "put 'median' first" in refusal("fedavg", "mean", "sgc", "median")
    assert "put 'norm_clip' first" in refusal("upcycled", "upcycle", "norm_clip")


def test_clipping_alone_makes_no_step():
    assert "put 'mean' behind it" in refusal("fedavg", "norm_clip", "momentum")


@pytest.mark.parametrize(("stage", "cohort", "needed"), [("krum", 8, 9), ("multi_krum", 6, 7), ("trimmed_mean", 4, 5)])
def test_a_cohort_that_can_never_be_enough_is_refused(stage, cohort, needed):
    assert f"'{stage}' needs at least {needed} answers" in refusal("fedavg", stage, cohort=cohort)


def test_late_answers_do_not_get_past_a_vote():
    rounds = {"cohort": 10, "late": "memory"}
    assert "past the vote of 'median'" in refusal("gradma", "median", "memory", rounds=rounds)


TRUST = {"guards": {"trust": "majority"}}


@pytest.mark.parametrize(
    ("algorithm", "stages"),
    [
        ("fedavg", ["norm_clip", "multi_krum", "trimmed_mean", "momentum"]),
        ("fedavgm", ["norm_clip", "multi_krum", "trimmed_mean", "momentum"]),
        ("upcycled", ["norm_clip", "upcycle", "momentum"]),
    ],
)
def test_to_trust_the_majority_is_to_clip_to_choose_and_to_keep_moving(algorithm, stages):
    run = vote(algorithm, **TRUST)
    assert [each.name for each in run.make_stages()] == stages
    own = [each for each in registry.algorithm({"name": algorithm}).stages() if each.name != "mean"]
    assert all(each in run.make_stages() for each in own), "the algorithm's own are left as they are"


@pytest.mark.parametrize("cohort", [5, 6, 7, 13, 14, 200])
def test_five_are_enough_to_find_who_is_unlike_all_others(cohort):
    names = [each.name for each in vote("fedavg", cohort=cohort, **TRUST).make_stages()]
    assert names == ["norm_clip", "multi_krum", "trimmed_mean", "momentum"]


@pytest.mark.parametrize("cohort", [3, 4])
def test_smaller_cohorts_trust_their_median(cohort):
    names = [each.name for each in vote("fedavg", cohort=cohort, **TRUST).make_stages()]
    assert names == ["norm_clip", "median", "momentum"]


def test_where_nobody_can_be_outvoted_there_is_no_majority():
    assert "needs at least 3 answers" in refusal("fedavg", cohort=2, **TRUST)


@pytest.mark.parametrize("algorithm", ["fedgc", "gradma", "mifa", "feddf"])
def test_where_each_device_may_object_the_majority_is_not_enough(algorithm):
    assert "lets each of them object" in refusal(algorithm, **TRUST)


@pytest.mark.parametrize("algorithm", ["scaffold", "mimelite", "feddyn"])
def test_where_devices_are_believed_the_majority_is_not_enough_either(algorithm):
    assert "believes" in refusal(algorithm, **TRUST)


def test_one_defence_at_a_time():
    assert "two defences" in refusal("fedavg", "median", **TRUST)


# ── what momentum and memory do in a free round ──────────────────────────────────────────────────────────────

HERE = site(Linear(1, 2, bias=False), dataset(features=1, classes=2))
START = np.zeros(2)


def two_rounds(*stages):
    """Round 1: one device moves by (4, -2). Round 2 is free, with kappa = 1/2. The steps, and the last states."""
    updates = {"a": Update(np.array([4.0, -2.0]), 1.0, 1)}
    odd, states = merge(1, START, updates, stages=stages, states={}, site=HERE)
    even, states = merge(2, odd, {}, stages=stages, states=states, site=HERE)
    return odd - START, even - odd, states


def test_alone_the_push_is_half_the_step_before():
    odd, even, _ = two_rounds(Upcycle(kappa=0.5))
    assert odd.tolist() == [4, -2]
    assert even.tolist() == [2, -1]


def test_momentum_takes_the_push_in_as_a_step_like_any_other():
    _, even, states = two_rounds(Upcycle(kappa=0.5), Momentum(beta=0.5))
    assert even.tolist() == [0.5 * 4 + 2, 0.5 * -2 - 1]  # beta m + push
    assert states["momentum"]["m"].tolist() == [4, -2]


def test_memory_takes_the_push_in_and_lets_its_rows_decay():
    _, even, states = two_rounds(Upcycle(kappa=0.5), Memory(size=3, beta1=0.5, beta2=0.25))
    assert even.tolist() == [0.5 * 4 + 2, 0.5 * -2 - 1]
    assert states["memory"]["members"].tolist() == ["a"]
    assert states["memory"]["scales"].tolist() == [0.25]
    assert (states["memory"]["counters"] == 1).all()  # nobody was seen again


def test_memory_keeps_a_push_from_opposing_a_device_that_is_remembered():
    stages = Upcycle(kappa=1.0), Memory(size=3, beta1=0.0, beta2=0.5)
    before = Draft(0, START, {"b": Update(np.array([1.0, 0.0]), 1.0, 1)}, np.zeros(2), 3)
    states = {"memory": Memory(size=3).apply(before, {}, HERE)[1]}
    odd, states = merge(1, START, {"a": Update(np.array([1.0, 1.0]), 1.0, 1)}, stages=stages, states=states, site=HERE)
    states = {**states, "upcycle": {"previous": odd + np.array([3.0, -1.0]), "round": np.array(1)}}  # pushes by (-3, 1)
    even, _ = merge(2, odd, {}, stages=stages, states=states, site=HERE)
    step = even - odd
    assert (step @ np.array([[1.0, 1.0], [1.0, 0.0]]).T >= -1e-12).all()
