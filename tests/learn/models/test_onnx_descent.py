"""Whole steps in a graph are the steps that numpy takes, however many of them one call has."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import cache

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx_checker import SAMPLES, SMALL, exported
from torch import nn

from edgefl.base import seeds
from edgefl.base.errors import Diverged, Interrupted, RemoteError
from edgefl.learn.algorithms import registry
from edgefl.learn.algorithms.fedavg import FedAvg
from edgefl.learn.contract import Budget, Site
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.losses import cross_entropy, double_softmax, squared_error, weighted
from edgefl.learn.models.normalised import Normalised
from edgefl.learn.models.onnx.bundle import pack, unpack
from edgefl.learn.models.onnx_backend import OnnxModel
from edgefl.learn.models.onnx_descent import Lane
from edgefl.learn.models.onnx_export import export
from edgefl.learn.models.onnx_session import run_options
from edgefl.learn.models.rule import TERMS, Rule, StepPlan
from edgefl.learn.models.torch_backend import initial_params
from edgefl.learn.training.descent import descend, in_graph, one_by_one, step_plan
from edgefl.learn.training.walking import walk

ALL = Rule(lr=0.05, momentum=0.9, weight_decay=0.01, pull=0.1)
PLAIN = Rule(lr=0.05)


def site(model, shape, samples=43, classes=4, **more):
    rng = seeds.stream(5, "descent")
    tokens = len(shape) == 1 and model.layout.names[0] != "0.weight"
    x = rng.integers(0, 90, (samples, *shape)) if tokens else rng.standard_normal((samples, *shape), np.float32)
    return Site(model, Dataset(x, rng.integers(0, classes, samples), classes), seeds.stream(1, "walk"), **more)


def apart(rule, w, here, again, **far):
    """The largest difference between a walk in the graph and the same one by one, relative to how far it went."""
    ours = descend(rule, w, here, Budget(), **far)
    theirs = walk(w, one_by_one(rule, w, again), again, Budget(), **far)
    assert (ours.steps, ours.samples) == (theirs.steps, theirs.samples)
    return np.abs(ours.params - theirs.params).max() / np.abs(theirs.params - w).max()


@pytest.mark.parametrize("name", SMALL)
def test_whole_steps_with_all_terms_are_those_of_numpy(name):
    module, bundle = exported(name)
    model, w, shape = OnnxModel(bundle), initial_params(module), SAMPLES[name]
    assert in_graph(ALL, w, site(model, shape), 8) is not None
    assert apart(ALL, w, site(model, shape), site(model, shape), batch=8, batches=7) < 2e-4


@pytest.mark.parametrize("name", ["text", "lstm", "transformer"])
def test_plain_steps_that_move_rows_of_a_table_are_those_of_numpy(name):
    module, _ = exported(name)
    model = OnnxModel(export(module, SAMPLES[name], dtype="int64", plan=StepPlan("cross_entropy")))
    w, shape = initial_params(module), SAMPLES[name]
    assert in_graph(PLAIN, w, site(model, shape), 8) is not None
    assert apart(PLAIN, w, site(model, shape), site(model, shape), batch=8, batches=7) < 2e-4


@cache
def perceptron():
    """A network on 16 features, whose mini-batches are whole lines of the cache, and its bundle without terms."""
    module = nn.Sequential(nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 4))
    for p in module.parameters():
        nn.init.normal_(p, std=0.3)
    return OnnxModel(export(module, (16,), plan=StepPlan("cross_entropy"))), initial_params(module)


@given(batch=st.integers(1, 50), batches=st.integers(1, 40), samples=st.integers(1, 90))
@settings(max_examples=25, deadline=None)
def test_how_many_steps_a_call_takes_changes_no_bit(batch, batches, samples):
    model, w = perceptron()
    here = site(model, (16,), samples)
    many = descend(PLAIN, w, here, Budget(), batch=batch, batches=batches)
    unhurried = replace(site(model, (16,), samples), timer=lambda: 0.0)  # no pace is known: one step after the other
    each = descend(PLAIN, w, unhurried, Budget(seconds=1.0), batch=batch, batches=batches)
    assert (many.steps, many.samples) == (each.steps, each.samples)
    assert np.array_equal(many.params, each.params)


@given(pace=st.floats(0.01, 3), seconds=st.floats(0.0, 30), batches=st.integers(1, 40))
@settings(max_examples=30, deadline=None)
def test_a_budget_of_seconds_ends_a_walk_after_the_same_step(pace, seconds, batches):
    model, w = perceptron()
    steps = []
    for take in (descend, lambda rule, w, here, *a, **k: walk(w, one_by_one(rule, w, here), here, *a, **k)):
        told = []
        here = replace(site(model, (16,)), watch=told.append, timer=lambda told=told: pace * len(told))
        walked = take(PLAIN, w, here, Budget(seconds=seconds), batch=4, batches=batches)
        assert told == [*range(1, walked.steps + 1)]
        steps.append(walked.steps)
    assert steps[0] == steps[1]


def test_a_step_that_leaves_the_finite_numbers_is_named_as_one_by_one():
    model, w = perceptron()
    wild = Rule(lr=1e12)
    messages = []
    for take in (descend, lambda rule, w, here, *a, **k: walk(w, one_by_one(rule, w, here), here, *a, **k)):
        with pytest.raises(Diverged) as error, np.errstate(all="ignore"):
            take(wild, w, site(model, (16,)), Budget(), batch=4, batches=40)
        messages.append(str(error.value).partition(":")[0])
    assert messages[0] == messages[1]
    assert messages[0] != "step 1"


def test_a_device_that_hides_its_work_takes_all_its_steps_all_the_same():
    model, w = perceptron()
    for take in (descend, lambda rule, w, here, *a, **k: walk(w, one_by_one(rule, w, here), here, *a, **k)):
        with np.errstate(all="ignore"):
            walked = take(Rule(lr=1e12), w, site(model, (16,), unbroken=True), Budget(), batch=4, batches=40)
        assert (walked.steps, walked.samples) == (40, 157)
        assert not np.isfinite(walked.params).all()


@pytest.mark.parametrize(("dropout", "batches"), [(0.0, 9), (0.3, 1)])  # from the second step on, masks differ with w
def test_real_targets_statistics_dropout_and_normalised_samples(dropout, batches):
    plan = StepPlan("squared_error", TERMS)
    module = nn.Sequential(nn.Linear(16, 12), nn.BatchNorm1d(12), nn.Dropout(dropout), nn.Linear(12, 2))
    inner, w = OnnxModel(export(module, (16,), plan=plan)), initial_params(module)
    model = Normalised(inner, np.full(16, 0.5), np.full(16, 2.0))

    def here():
        plain = site(model, (16,))
        y = np.random.default_rng(2).standard_normal((43, 2))
        return replace(plain, data=Dataset(plain.data.x, y, 0), loss=squared_error)

    assert in_graph(ALL, w, here(), 8) is not None
    assert in_graph(ALL, w, here(), 1) is None  # BatchNorm of one sample
    assert apart(ALL, w, here(), here(), batch=8, batches=batches) < 2e-4


def test_the_softmax_of_a_softmax_is_that_of_numpy():
    module = nn.Sequential(nn.Linear(16, 4))
    model, w = OnnxModel(export(module, (16,), plan=StepPlan("double_softmax", TERMS))), initial_params(module)

    def here():
        return site(model, (16,), loss=double_softmax)

    assert in_graph(ALL, w, here(), 8) is not None
    assert in_graph(ALL, w, replace(here(), loss=cross_entropy), 8) is None
    assert apart(ALL, w, here(), here(), batch=8, batches=20) < 2e-4


def test_threads_walk_on_one_model_at_the_same_time():
    model, w = perceptron()

    def train(_):
        return descend(PLAIN, w, site(model, (16,), 400), Budget(), batch=4, epochs=2).params

    with ThreadPoolExecutor(4) as threads:
        first, *others = threads.map(train, range(12))
    assert all(np.array_equal(first, other) for other in others)


def test_what_the_graph_was_not_made_for_goes_one_by_one():
    model, w = perceptron()
    here = site(model, (16,))
    labels = here.data.y.copy()
    labels[3] = 4  # there are four classes
    assert isinstance(in_graph(PLAIN, w, here, 8), Lane)
    assert in_graph(ALL, w, here, 8) is None
    assert in_graph(PLAIN, w, replace(here, loss=squared_error), 8) is None
    assert in_graph(PLAIN, w, replace(here, loss=weighted(cross_entropy, np.ones(4))), 8) is None
    assert in_graph(PLAIN, w, replace(here, data=replace(here.data, y=labels)), 8) is None


def test_an_interrupted_walk_ends_and_the_next_one_goes_on():
    module, bundle = exported("mlp")
    model, w = OnnxModel(bundle), initial_params(module)
    here = site(model, SAMPLES["mlp"])
    model.interrupt()
    with pytest.raises(Interrupted):
        descend(ALL, w, here, Budget(), batch=8)
    model.resume()
    assert descend(ALL, w, here, Budget(), batch=8).steps == 6


@pytest.mark.parametrize("algorithm", registry.ALGORITHMS)
def test_the_plan_of_a_run_follows_from_its_algorithm_and_its_loss(algorithm):
    plain = {"fedavg", "fedavgm", "fedgc", "mifa", "mifam", "feddf", "fedadam", "fedyogi", "fedadagrad"}
    plain |= {"fedper", "fedbn", "ditto"}
    pulled = {"fedprox": ("pull",), "fedasync": ("pull",), "upcycled": ("pull", "momentum")}
    expected = {**pulled, **dict.fromkeys(plain, ())}.get(algorithm)
    plan = step_plan(registry.algorithm({"name": algorithm}), cross_entropy)
    assert plan == (None if expected is None else StepPlan("cross_entropy", expected))
    assert step_plan(FedAvg(), lambda z, y: (0.0, z)) is None


def test_a_plan_travels_with_its_bundle_and_one_that_is_none_is_refused():
    module, bundle = exported("mlp")
    assert unpack(pack(bundle)).plan == StepPlan("cross_entropy", TERMS)
    lying = replace(bundle, plan=StepPlan("cross_entropy"))
    with pytest.raises(RemoteError, match="velocity_from"):
        OnnxModel(lying).descent("cross_entropy", PLAIN, initial_params(module))
    with pytest.raises(RemoteError, match="outputs"):
        OnnxModel(bundle, outputs=7).descent("cross_entropy", ALL, initial_params(module))
    with pytest.raises(RemoteError, match="MiB"):
        OnnxModel(bundle, memory=2**20, batch=4096).descent("cross_entropy", ALL, initial_params(module))


def test_an_undone_call_has_its_weights_again():
    model, w = perceptron()
    data = site(model, (16,)).data
    lane = model.descent("cross_entropy", PLAIN, w)
    with closing(lane):
        lane.take(data.x, data.y, np.arange(8).reshape(2, 4))
        once = lane.params()
        lane.take(data.x, data.y, np.arange(8).reshape(1, 8))
        assert not np.array_equal(lane.params(), once)
        lane.back()
        assert np.array_equal(lane.params(), once)


def test_a_call_does_not_look_for_a_gpu_graph_that_nobody_captures():
    """Where the entry is missing, onnxruntime's Python side raises and catches an error in every call."""
    assert run_options().get_run_config_entry("gpu_graph_id") == "-1"


def a_step(module, shape, **more):
    """The nodes of one plain step."""
    bundle = export(module, shape, plan=StepPlan("cross_entropy"), **more)
    (loop,) = onnx.load_from_string(bundle.descent).graph.node
    return next(attribute.g.node for attribute in loop.attribute if attribute.name == "body")


def test_a_large_dense_layer_is_multiplied_weights_first_and_moves_its_weights_while_it_multiplies():
    nodes = a_step(nn.Sequential(nn.Linear(240, 240), nn.ReLU(), nn.Linear(240, 4)), (240,))
    products = [list(node.input) for node in nodes if node.op_type == "Gemm"]
    assert products[0][:2] == ["w.0.weight", "x"]
    assert [given[2] for given in products if len(given) == 3][-2:] == ["w.0.weight", "w.2.weight"]
    assert "Transpose" not in {node.op_type for node in nodes}


def test_only_those_rows_of_a_table_are_added_to_that_a_mini_batch_has_read():
    nodes = a_step(nn.Sequential(nn.Embedding(90, 6), nn.Flatten(), nn.Linear(30, 4)), (5,), dtype="int64")
    (scattered,) = (node for node in nodes if node.op_type == "ScatterND")
    assert (scattered.input[0], list(scattered.output)) == ("w.0.weight", ["next.0.weight"])
    assert "ConstantOfShape" not in {node.op_type for node in nodes}
