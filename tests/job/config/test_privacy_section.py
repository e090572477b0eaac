"""The [privacy] table: one documented place, one form on the wire, and nothing that is accepted silently."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import clouds, site

from edgefl.base.errors import ConfigError
from edgefl.job.config.privacy import needs_individuals
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.learn.aggregation import merge
from edgefl.learn.algorithms import registry
from edgefl.learn.contract import Update, traits_of

ALGORITHMS = sorted(registry.ALGORITHMS)
STAGES = sorted(registry.STAGES)
PRIVATE = {"upcycled", "fedprox"}
ON_SINGLE_UPDATES = {"sgc", "memory", "table", "curvature", "distill", "ensemble", "mix"}
ON_SINGLE_UPDATES |= {"median", "trimmed_mean", "krum", "multi_krum", "geometric_median", "norm_clip"}


def read(*, algorithm="fedavg", privacy=None, aggregation=(), environment=None, sets=(), **more):
    table = {"algorithm": {"name": algorithm, **more.pop("hyper", {})}, "rounds": {"cohort": 4, **more}}
    table |= {"privacy": privacy} if privacy is not None else {}
    table |= {"aggregation": [{"name": name} for name in aggregation]} if aggregation else {}
    return parse(RunFile, table, "run.toml", sets, environment or {})


def complaint(**asked):
    with pytest.raises(ConfigError) as refused:
        read(**asked)
    line = str(refused.value)
    assert line.startswith("run.toml: ")
    assert "\n" not in line
    return line.removeprefix("run.toml: ")


# ---- the mechanism reaches the algorithm ---------------------------------------------------------------------------


def test_the_section_and_the_algorithm_s_own_field_are_one_form_on_the_wire():
    mine = {"mechanism": "output", "clip": 2.0, "sigma": 0.5}
    section = read(algorithm="upcycled", privacy=mine).make_algorithm()
    field = read(algorithm="upcycled", hyper={"privacy": mine}).make_algorithm()
    assert registry.describe(section) == registry.describe(field)
    assert (section.privacy.mechanism, section.privacy.clip, section.privacy.sigma) == ("output", 2.0, 0.5)


def test_flags_and_the_environment_reach_it_like_any_other_section():
    run = read(algorithm="upcycled", sets=["privacy.mechanism=objective"], environment={"EDGEFL_PRIVACY__ALPHA": "9"})
    assert run.make_algorithm().privacy.alpha == 9.0


def test_a_run_with_it_read_from_its_own_json_is_the_same_run():
    run = read(algorithm="upcycled", privacy={"mechanism": "output"})
    assert RunFile.model_validate_json(run.model_dump_json()) == run


def test_without_the_section_nothing_is_private():
    assert read(algorithm="upcycled").make_algorithm().privacy is None


# ---- what is wrong with it -----------------------------------------------------------------------------------------


def test_both_places_at_once_are_refused():
    line = complaint(
        algorithm="upcycled", privacy={"mechanism": "output"}, hyper={"privacy": {"mechanism": "objective"}}
    )
    assert line == "[privacy] and algorithm.privacy both choose a mechanism ('output' and 'objective'); keep [privacy]"


@pytest.mark.parametrize(
    ("privacy", "line"),
    [
        ({"mechanism": "outptu"}, "privacy.mechanism = 'outptu' is not known; did you mean 'output'?"),
        ({"sigma": 1.0}, "privacy.mechanism = None is not known; known: objective, output"),
        ({}, "privacy.mechanism = None is not known; known: objective, output"),
        ({"mechanism": ["output"]}, "privacy.mechanism = ['output'] is not known; "),
        ({"mechanism": "output", "sigma": -1}, "privacy 'output': sigma = -1: Input should be greater than 0"),
        ({"mechanism": "output", "sigm": 1}, "privacy 'output': unknown key 'sigm'; did you mean 'sigma'?"),
        ({"mechanism": "output", "alpha": 1}, "privacy 'output': unknown key 'alpha'; "),
        ({"mechanism": "objective", "alpha": 0}, "privacy 'objective': alpha = 0: Input should be greater than 0"),
        ({"mechanism": "objective", "u1": 1}, "privacy 'objective': unknown key 'u1'; "),
    ],
)
def test_a_wrong_table_is_named_with_key_value_and_remedy(privacy, line):
    assert complaint(algorithm="upcycled", privacy=privacy).startswith(line)


@pytest.mark.parametrize("mechanism", ["output", "objective"])
@pytest.mark.parametrize("algorithm", sorted(set(ALGORITHMS) - PRIVATE))
def test_an_algorithm_without_a_private_version_is_refused_by_name(algorithm, mechanism):
    line = complaint(algorithm=algorithm, privacy={"mechanism": mechanism})
    assert f"privacy.mechanism = '{mechanism}': algorithm '{algorithm}' has no private version" in line
    assert "use algorithm.name = 'fedprox' or algorithm.name = 'upcycled'" in line


@pytest.mark.parametrize("loss", ["squared_error", "double_softmax"])
@pytest.mark.parametrize("place", ["section", "field"])
def test_a_loss_that_no_proof_covers_is_refused_with_objective_perturbation(loss, place):
    mine = {"mechanism": "objective"}
    table = {"algorithm": {"name": "upcycled"}, "task": {"loss": loss}, "rounds": {"cohort": 4}}
    table |= {"privacy": mine} if place == "section" else {"algorithm": {"name": "upcycled", "privacy": mine}}
    with pytest.raises(ConfigError, match=f"does not cover loss '{loss}'"):
        parse(RunFile, table, "run.toml", environment={})
    parse(RunFile, {**table, "task": {"loss": "cross_entropy"}}, "run.toml", environment={})


def test_objective_perturbation_is_refused_without_a_pull():
    assert "needs algorithm.mu above 0" in complaint(
        algorithm="fedprox", privacy={"mechanism": "objective"}, hyper={"mu": 0.0}
    )


# ---- secure aggregation --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_secure_aggregation_is_refused_for_every_algorithm_with_the_reason(algorithm):
    line = complaint(algorithm=algorithm, privacy={"mechanism": "secagg"})
    looks = [s.name for s in read(algorithm=algorithm).make_stages() if s.name in ON_SINGLE_UPDATES]
    assert ("hides single updates" in line) == bool(looks)
    assert all(f"stage '{name}'" in line for name in looks)
    assert f"algorithm '{algorithm}'" in line
    assert "does not offer secure aggregation" in line or "nor does this version offer" in line
    assert "use mechanism = 'output' with algorithm.name = 'fedprox' or algorithm.name = 'upcycled'" in line


@given(
    algorithm=st.sampled_from(ALGORITHMS),
    stages=st.lists(st.sampled_from(STAGES), unique=True, max_size=5),
    late=st.sampled_from(["drop", "discount", "memory"]),
    more=st.dictionaries(st.sampled_from(["clip", "sigma", "threshold"]), st.floats(1, 2), max_size=2),
)
def test_no_combination_with_secure_aggregation_is_accepted(algorithm, stages, late, more):
    line = complaint(algorithm=algorithm, privacy={"mechanism": "secagg", **more}, aggregation=stages, late=late)
    named = {name for name in STAGES if f"stage '{name}'" in line}
    used = set(stages) or {s.name for s in read(algorithm=algorithm).make_stages()}
    assert named == used & ON_SINGLE_UPDATES
    assert (f"rounds.late = '{late}'" in line) == (late != "drop")


class Krum:
    """A stage from elsewhere that does not say what it looks at."""

    name = "krum"


def test_a_stage_that_does_not_say_is_taken_to_look_at_single_updates():
    assert needs_individuals(Krum())


@pytest.mark.parametrize("name", STAGES)
def test_every_stage_of_ours_says_what_it_looks_at(name):
    assert traits_of(registry.stage_registry()[name]()).individual == (name in ON_SINGLE_UPDATES)


# ---- what the stages say is true -----------------------------------------------------------------------------------

START = np.arange(4, dtype=np.float64)
WEIGHTS = {"a": 3.0, "b": 3.0}


def played(stages, shift):
    """What the coordinator knows after three rounds of two devices whose answers are pulled apart by `shift`.

    Their sums are the same whatever the shift.
    """
    here = replace(site(clouds(16)), rng=np.random.default_rng(0))
    params, states, rng = START, {}, np.random.default_rng(5)
    for round in (1, 2, 3):
        updates = {}
        for device, sign in (("a", 1.0), ("b", -1.0)):
            delta, extra = rng.normal(size=(2, 4))
            apart = sign * shift * np.array([1.0, -2.0, 0.5, 3.0])
            sent = dict.fromkeys(("dc", "gradient"), extra + apart)
            updates[device] = Update(delta + apart, WEIGHTS[device], 1, sent)
        params, states = merge(round, params, updates, stages=stages, states=states, site=here, population=5)
    kept = [array for state in states.values() for array in state.values() if array.dtype.kind == "f"]
    return np.concatenate([params, *(array.ravel() for array in kept)])


@pytest.mark.parametrize("name", sorted(set(STAGES) - ON_SINGLE_UPDATES))
def test_a_stage_on_sums_cannot_tell_who_did_what(name):
    stages = tuple(registry.stage({"name": each}) for each in dict.fromkeys(("mean", name)))
    np.testing.assert_allclose(played(stages, 0.0), played(stages, 10.0), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["sgc", "memory"])
def test_a_stage_on_single_updates_can(name):
    stages = tuple(registry.stage({"name": each}) for each in ("mean", name))
    assert np.abs(played(stages, 0.0)[:4] - played(stages, 10.0)[:4]).max() > 1e-3
