"""Flashback: invariants F1 to F8, the book of counts, and the server stage."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from toys import Linear, dataset, nothing, numeric_gradient, site, weights

from edgefl.base.errors import ConfigError
from edgefl.learn.aggregation import Mean, mean, merge
from edgefl.learn.algorithms import registry
from edgefl.learn.algorithms.fedavg import FedAvg
from edgefl.learn.algorithms.fedntd import FedNTD
from edgefl.learn.algorithms.flashback import Distill, Flashback, class_weights, distillation, knowledge, trust
from edgefl.learn.contract import Draft, Task, Update
from edgefl.learn.evaluation.metrics import evaluate
from edgefl.learn.losses import cross_entropy, log_softmax, softmax
from edgefl.learn.training.public import split

counts3 = arrays(np.int64, 3, elements=st.integers(0, 50))
teachers3 = st.integers(1, 4).flatmap(lambda k: arrays(np.int64, (k, 3), elements=st.integers(0, 50)))
logits = arrays(float, (4, 3), elements=st.floats(-5, 5))
Y = np.array([0, 2, 1, 2])
PLAIN = {"lr": 0.1, "batch": 32, "epochs": 1, "momentum": 0.0, "weight_decay": 0.0}  # the same for all in a test
LONG = {**PLAIN, "epochs": 10}
MODEL = Linear(4, 3)
LOCAL = {"a": dataset(60, seed=1, only=(0,)), "b": dataset(60, seed=2, only=(1,)), "c": dataset(60, seed=3, only=(2,))}


def play(algorithm, rounds, public, stages=None):
    """The models of rounds 0..rounds, and the state of the stages at the end."""
    models, server, own = [weights(MODEL)], {}, {device: {} for device in LOCAL}
    for t in range(1, rounds + 1):
        task = Task(t, models[-1], extra=algorithm.plan(t, models[-1], server))
        updates = {}
        for i, (device, data) in enumerate(LOCAL.items()):
            updates[device], own[device] = algorithm.train(task, own[device], site(MODEL, data, 10 * t + i))
        chain = algorithm.stages() if stages is None else stages
        merged, server = merge(t, models[-1], updates, stages=chain, states=server, site=site(MODEL, public, t))
        models.append(merged)
    return models, server


# The formulas


@given(counts3, teachers3)
def test_f1_the_shares_of_every_class_are_between_zero_and_one_and_sum_to_one(student, teachers):
    alpha_s, alphas = class_weights(student, teachers)
    both = np.vstack([alpha_s, alphas])
    assert ((both >= 0) & (both <= 1)).all()
    np.testing.assert_allclose(both.sum(axis=0), 1)


def test_a_class_that_nobody_has_seen_is_left_to_the_student():
    alpha_s, alphas = class_weights(np.array([3, 0]), np.array([[1, 0], [4, 0]]))
    np.testing.assert_allclose(alpha_s, [3 / 8, 1])
    np.testing.assert_allclose(alphas, [[1 / 8, 0], [4 / 8, 0]])


@given(logits, logits, counts3)
def test_f2_without_trust_in_the_teacher_the_loss_is_cross_entropy(z, teacher, own):
    alpha_s, alphas = class_weights(own, np.zeros((1, 3)))
    loss, dz = distillation(z, Y, teacher[None], alpha_s, alphas, 3.0)
    expected, dexpected = cross_entropy(z, Y)
    assert loss == pytest.approx(expected, abs=1e-15)
    np.testing.assert_allclose(dz, dexpected, atol=1e-15)


@given(logits, counts3, counts3)
def test_f3_a_teacher_that_agrees_with_the_student_adds_nothing_to_the_loss(z, own, theirs):
    alpha_s, alphas = class_weights(own, theirs[None])
    weighted = -(alpha_s[Y] * log_softmax(z)[np.arange(4), Y]).mean()
    assert distillation(z, Y, z[None], alpha_s, alphas, 3.0)[0] == pytest.approx(weighted, abs=1e-12)


@given(logits, arrays(float, (2, 4, 3), elements=st.floats(-5, 5)), counts3, st.booleans())
def test_the_gradient_is_that_of_the_loss(z, teachers, own, kd_t2):
    alpha_s, alphas = class_weights(own, np.array([[4, 0, 9], [1, 7, 0]]))

    def loss(v):
        return distillation(v, Y, teachers, alpha_s, alphas, 3.0, kd_t2=kd_t2)[0]

    _, dz = distillation(z, Y, teachers, alpha_s, alphas, 3.0, kd_t2=kd_t2)
    np.testing.assert_allclose(dz, numeric_gradient(loss, z), atol=1e-6)


@given(logits, logits, arrays(float, (1, 3), elements=st.floats(0, 1)))
def test_f5_the_gradient_of_the_distillation_sums_to_zero_for_every_sample(z, teacher, alphas):
    _, dz = distillation(z, Y, teacher[None], np.zeros(3), alphas, 3.0)
    np.testing.assert_allclose(dz.sum(axis=1), 0, atol=1e-12)
    p, q = softmax(teacher / 3), softmax(z / 3)
    expected = 3 * ((alphas * p).sum(axis=1, keepdims=True) * q - alphas * p) / len(z)
    np.testing.assert_allclose(dz, expected, atol=1e-12)


@given(logits, logits, logits)
def test_f6_what_a_teacher_thinks_beyond_its_own_classes_does_not_matter(z, teacher, other):
    alpha_s, alphas = class_weights(np.array([5, 5, 5]), np.array([[4, 0, 0]]))
    p = softmax(teacher / 3)
    rest = softmax(other / 3)[:, 1:]
    swapped = np.hstack([p[:, :1], (1 - p[:, :1]) * rest / rest.sum(axis=1, keepdims=True)])  # same belief in class 0
    one, done = distillation(z, Y, teacher[None], alpha_s, alphas, 3.0)
    two, dtwo = distillation(z, Y, 3 * np.log(swapped)[None], alpha_s, alphas, 3.0)
    assert one == pytest.approx(two, abs=1e-9)
    np.testing.assert_allclose(done, dtwo, atol=1e-9)


@given(logits, logits)
def test_f7_uniform_shares_are_ordinary_distillation(z, teacher):
    loss, _ = distillation(z, Y, teacher[None], np.full(3, 0.5), np.full((1, 3), 0.5), 3.0)
    logp, logq = log_softmax(teacher / 3), log_softmax(z / 3)
    kl = (np.exp(logp) * (logp - logq)).sum(axis=1).mean()
    assert loss == pytest.approx(0.5 * cross_entropy(z, Y)[0] + 0.5 * 9 * kl, abs=1e-9)


def test_without_t_squared_the_distillation_weighs_a_ninth():
    rng = np.random.default_rng(0)
    z, teacher = rng.standard_normal((2, 4, 3))
    full, part = (
        distillation(z, Y, teacher[None], np.zeros(3), np.ones((1, 3)), 3.0, kd_t2=on) for on in (True, False)
    )
    assert full[0] == pytest.approx(9 * part[0])
    np.testing.assert_allclose(full[1], 9 * part[1])


def test_float64_in_gives_float64_out_and_float32_stays():
    for dtype in (np.float32, np.float64):
        z = np.zeros((4, 3), dtype)
        assert distillation(z, Y, z[None], np.ones(3), np.ones((1, 3)), 3.0)[1].dtype == dtype


# Trust


@given(
    arrays(np.int64, (3, 2), elements=st.integers(0, 40)),
    st.lists(st.sets(st.integers(0, 2)), max_size=15),
    st.sampled_from([0.025, 0.1, 0.3, 1 / 3, 0.5, 1.0, 2.0]),
)
def test_f4_trust_never_falls_and_never_passes_what_the_devices_have(counts, rounds, gamma):
    pi, seen = np.zeros(2), np.zeros(3, np.int64)
    for sampled in rounds:
        after, seen = trust(pi, counts, seen, sorted(sampled), gamma)
        assert (after >= pi).all()
        pi = after
    assert (pi <= counts.sum(axis=0) + 1e-9).all()


@pytest.mark.parametrize(("gamma", "times"), [(0.1, 10), (0.3, 3), (1.0, 1), (1.5, 0), (0.025, 40)])
def test_f4_a_device_contributes_a_limited_number_of_times(gamma, times):
    pi, seen = np.zeros(2), {"a": 0}
    history = []
    for _ in range(times + 3):
        pi, seen = trust(pi, {"a": np.array([10, 30])}, seen, ["a"], gamma)
        history.append(pi)
    np.testing.assert_allclose(pi, times * gamma * np.array([10, 30]))
    np.testing.assert_array_equal(history[times:], [pi] * 3)
    assert seen == {"a": times + 3}


def test_trust_leaves_its_arguments_alone():
    pi, seen = np.zeros(2), np.zeros(1, np.int64)
    trust(pi, np.ones((1, 2)), seen, [0], 0.5)
    assert not pi.any()
    assert not seen.any()


# The device half


def test_f8_without_the_server_side_and_without_trust_it_is_fedavg():
    ours, _ = play(Flashback(sides="device", gamma=0, **PLAIN), 3, nothing(dataset()))
    theirs, _ = play(FedAvg(**PLAIN), 3, nothing(dataset()))
    np.testing.assert_array_equal(ours, theirs)


def test_the_first_round_of_a_device_is_fedavgs():
    task = Task(1, weights(MODEL), extra=Flashback().plan(1, weights(MODEL), {}))
    ours, _ = Flashback(**PLAIN).train(task, {}, site(MODEL))
    theirs, _ = FedAvg(**PLAIN).train(task, {}, site(MODEL))
    np.testing.assert_array_equal(ours.delta, theirs.delta)


def test_a_device_tells_its_counts_until_an_answer_was_accepted_and_then_no_more():
    task = Task(1, weights(MODEL))
    first, kept = Flashback().train(task, {}, site(MODEL, LOCAL["b"]))
    again, _ = Flashback().train(task, {}, site(MODEL, LOCAL["b"]))  # not accepted, so nothing was kept
    later, _ = Flashback().train(task, kept, site(MODEL, LOCAL["b"]))
    np.testing.assert_array_equal(first.extra["counts"], [0, 60, 0])
    np.testing.assert_array_equal(again.extra["counts"], [0, 60, 0])
    assert later.extra == {}


def test_the_plan_carries_trust_as_one_number_per_class_that_no_codec_rounds():
    algorithm = Flashback(gamma=0.5)
    _, server = play(algorithm, 1, dataset(40, seed=9))
    told = algorithm.plan(2, weights(MODEL), server)["pi"]
    np.testing.assert_allclose(told, [30, 30, 30])
    assert told.dtype == np.float64
    assert replace(algorithm, sides="server").plan(2, weights(MODEL), server) == {}


def test_a_trusted_teacher_keeps_absent_classes_alive_on_the_device():
    everything = dataset(200, seed=5)
    good = weights(MODEL)
    for t in range(20):
        good = good + FedAvg(epochs=2).train(Task(t, good), {}, site(MODEL, everything, t))[0].delta
    task = Task(2, good, extra={"pi": np.full(3, 500.0)})
    ours, theirs = (a.train(task, {}, site(MODEL, LOCAL["a"]))[0] for a in (Flashback(**LONG), FedAvg(**LONG)))
    ours_after, theirs_after = (evaluate(MODEL, good + u.delta, everything) for u in (ours, theirs))
    assert ours_after.loss < theirs_after.loss


def test_the_ablation_with_not_true_distillation_is_fedntds_device_half():
    task = Task(2, weights(MODEL), extra={"pi": np.ones(3)})
    ours, theirs = (a.train(task, {}, site(MODEL))[0] for a in (Flashback(device_loss="ntd", **PLAIN), FedNTD(**PLAIN)))
    np.testing.assert_array_equal(ours.delta, theirs.delta)


# The server half


def draft(updates, params=None):
    params = weights(MODEL) if params is None else params
    return Draft(1, params, updates, mean(updates))


def answers():
    task = Task(1, weights(MODEL))
    return {
        device: Flashback(epochs=3).train(task, {}, site(MODEL, data, i))[0]
        for i, (device, data) in enumerate(LOCAL.items())
    }


def test_distilling_specialists_beats_their_mean_on_the_validation_part():
    public = site(MODEL, dataset(80, seed=9))
    before = draft(answers())
    after, state = Distill(lr=0.1).apply(before, {}, public)
    held_out = split(public, "distill").validation
    losses = [evaluate(MODEL, d.params + d.step, held_out).loss for d in (before, after)]
    assert losses[1] < losses[0]
    assert 1 <= int(state["epochs"]) <= 20


def test_the_plain_mean_wins_when_no_epoch_is_better():
    before = draft(answers())
    after, state = Distill(lr=1000.0).apply(before, {}, site(MODEL, dataset(80, seed=9)))
    np.testing.assert_array_equal(after.params + after.step, before.params + before.step)
    assert int(state["epochs"]) == 0


def test_the_mean_may_be_barred_from_winning():
    _, state = Distill(lr=1000.0, keep_start=False).apply(draft(answers()), {}, site(MODEL, dataset(80, seed=9)))
    assert int(state["epochs"]) >= 1


def test_patience_on_accuracy_never_lowers_it():
    public = site(MODEL, dataset(80, seed=9))
    before = draft(answers())
    after, _ = Distill(patience_on="accuracy", max_epochs=10).apply(before, {}, public)
    held_out = split(public, "distill").validation
    accuracies = [evaluate(MODEL, d.params + d.step, held_out).accuracy for d in (before, after)]
    assert accuracies[1] >= accuracies[0]


def test_trust_is_counted_after_the_distillation():
    _, server = play(Flashback(gamma=0.1), 2, dataset(80, seed=9))
    book = server["distill"]
    np.testing.assert_allclose(book["pi"], [12, 12, 12])
    np.testing.assert_array_equal(book["seen"], [2, 2, 2])
    assert book["devices"].tolist() == ["a", "b", "c"]
    assert int(book["uncounted"]) == 0


def test_in_the_first_round_public_labels_do_not_matter_where_somebody_has_the_class():
    data = dataset(80, seed=9)
    training = np.setdiff1d(np.arange(80), np.argsort(data.y, kind="stable")[3::4])
    # Neighbours of different classes trade their labels, so that the split stays what it was.
    i = next(i for i in training if i + 1 in training and data.y[i] != data.y[i + 1])
    traded = data.y.copy()
    traded[[i, i + 1]] = traded[[i + 1, i]]
    stage = Distill(max_epochs=1, keep_start=False)
    first, state = stage.apply(draft(answers()), {}, site(MODEL, data))
    same, _ = stage.apply(draft(answers()), {}, site(MODEL, replace(data, y=traded)))
    np.testing.assert_array_equal(first.step, same.step)

    second, _ = stage.apply(draft(answers()), state, site(MODEL, data))
    other, _ = stage.apply(draft(answers()), state, site(MODEL, replace(data, y=traded)))
    assert (second.step != other.step).any()


def test_the_state_is_named_arrays_without_objects():
    _, server = play(Flashback(), 2, dataset(80, seed=9))
    assert all(isinstance(v, np.ndarray) and v.dtype != object for v in server["distill"].values())


def test_the_same_round_gives_the_same_model():
    one, two = (Distill().apply(draft(answers()), {}, site(MODEL, dataset(80, seed=9), 4))[0] for _ in range(2))
    np.testing.assert_array_equal(one.step, two.step)


def test_counts_in_a_late_answer_are_written_down_but_do_not_take_part():
    first = answers()
    late = {"c": first.pop("c")}
    _, state = Distill(max_epochs=0).apply(replace(draft(first), late=late), {}, site(MODEL))
    np.testing.assert_array_equal(state["counts"], np.diag([60, 60, 60]))
    np.testing.assert_array_equal(state["seen"], [1, 1, 0])
    np.testing.assert_allclose(state["pi"], [6, 6, 0])


@pytest.mark.parametrize("told", [np.array([1, 2]), np.array([1, -2, 3]), np.array([1.0, np.nan, 2.0])])
def test_counts_that_cannot_be_used_make_a_device_a_teacher_of_nothing(told):
    updates = answers()
    updates["b"] = replace(updates["b"], extra={"counts": told})
    _, state = Distill().apply(draft(updates), {}, site(MODEL, dataset(80, seed=9)))
    np.testing.assert_allclose(state["pi"], [6, 0, 6])
    assert int(state["uncounted"]) == 1


def test_a_round_without_devices_is_left_alone():
    empty = Draft(2, weights(MODEL), {}, np.zeros(MODEL.layout.size, np.float32))
    after, state = Distill().apply(empty, {}, site(MODEL))
    assert after is empty
    assert state == {}


def test_statistics_do_not_disturb_it():
    model = Linear(4, 3, statistics=True)
    task = Task(1, weights(model))
    updates = {"a": Flashback().train(task, {}, site(model))[0]}
    after, _ = Distill().apply(Draft(1, task.params, updates, mean(updates)), {}, site(model, dataset(80, seed=9)))
    assert np.isfinite(after.step).all()


def test_without_public_data_the_stage_names_the_key_to_set():
    with pytest.raises(ConfigError, match=r"aggregation 'distill' .* there are none; set task\.public"):
        Distill().apply(draft(answers()), {}, site(MODEL, nothing(dataset())))


def test_the_device_side_alone_needs_no_public_data():
    models, server = play(Flashback(sides="device"), 2, nothing(dataset()))
    assert server["distill"]["pi"].any()
    assert np.isfinite(models[-1]).all()


def test_devices_that_tell_no_counts_are_refused_by_name():
    plain = {"a": Update(np.zeros(MODEL.layout.size, np.float32), 1.0, 1)}
    with pytest.raises(ConfigError, match=r"'distill': no device sent its label counts; use algorithm.name = 'flash"):
        Distill().apply(draft(plain), {}, site(MODEL, dataset(80)))


def test_a_pipeline_without_its_stage_is_refused_by_name():
    with pytest.raises(ConfigError, match="needs the stage 'distill'"):
        play(Flashback(), 2, dataset(80), stages=(Mean(),))


def test_it_survives_the_trip_through_a_manifest():
    algorithm = Flashback(gamma=0.025, sides="server")
    assert registry.algorithm(json.loads(json.dumps(registry.describe(algorithm)))) == algorithm
    assert [stage.name for stage in algorithm.stages()] == ["mean", "distill"]


def test_relative_counts_know_shares_of_classes_and_not_numbers():
    counts = np.array([[30, 10], [0, 0], [0, 5]])
    assert knowledge(counts, "raw") is counts
    np.testing.assert_allclose(knowledge(counts, "relative"), [[0.75, 0.25], [0, 0], [0, 1]])
    _, server = play(Flashback(counts="relative", gamma=0.5, **PLAIN), 1, dataset(40, seed=9))
    np.testing.assert_allclose(server["distill"]["pi"], [0.5, 0.5, 0.5])  # of three devices with one class each
    assert server["distill"]["counts"].dtype == np.int64  # what devices tell is the same
