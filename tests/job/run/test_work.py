"""One device's work on one round, as real bytes."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from pydantic import ValidationError
from tiny import Tiny, clouds

from edgefl.base import seeds
from edgefl.base.errors import Diverged, WireError
from edgefl.job.run.work import ModelRef, Worker, heard_broadcast, pack_broadcast, unpack_answer, unpack_broadcast
from edgefl.job.transforms.listing import device_transforms
from edgefl.job.transforms.transform import VectorForm
from edgefl.learn.algorithms.fedavg import FedAvg
from edgefl.learn.algorithms.fedprox import FedProx
from edgefl.learn.contract import Budget, Task, Update
from edgefl.learn.losses import cross_entropy
from edgefl.learn.privacy.noise import Output
from edgefl.wire import tensors
from edgefl.wire.codecs import CODECS, codec
from edgefl.wire.messages import TO_COORDINATOR, Answer, read

FLOAT32, FLOAT16 = CODECS["float32"], CODECS["float16"]
FOUR = VectorForm(4)
MODEL_REF = ModelRef("life-1", "model-1")
W = np.array([0.1, 0.2, 0.3, 0.4], np.float32)


@dataclass
class Says:
    """A device half that always answers the same."""

    update: Update
    seen: list = field(default_factory=list)

    def train(self, task, state, site):
        self.seen.append(state)
        return self.update, {"own": np.ones(1)}


def worker(algorithm=None, code=FLOAT32, **more):
    algorithm = algorithm or FedAvg(batches=2)
    transforms = device_transforms(algorithm, code)
    return Worker("job", "pi-1", algorithm, Tiny(), clouds(), cross_entropy, transforms, 7, **more)


def opened(done, size=4):
    header, frame = read(TO_COORDINATOR, done.frame, limit=1 << 20)
    return header, unpack_answer(header, frame.body, VectorForm(size))


def bits(state):
    return {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in state.items()}


def answer(arrays, weight=1.0):
    described, parts, _ = tensors.encode(arrays, FLOAT32)
    header = Answer(job="j", run_id="r", round=1, device="d", model="m", weight=weight, steps=1, tensors=described)
    return header, memoryview(b"".join(parts))


# ---- the way out ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compress", [False, True])
def test_a_broadcast_carries_the_model_and_what_the_plan_added(compress):
    extra = {"c": np.arange(4, dtype=np.float32), "n": np.array(3)}
    params, told = unpack_broadcast(pack_broadcast("job", 1, W, extra, FLOAT32, compress=compress), 4)
    assert params.tobytes() == W.tobytes()
    assert {key: value.tolist() for key, value in told.items()} == {"c": [0, 1, 2, 3], "n": 3}


def test_a_model_of_zeros_that_compresses_to_almost_nothing_is_received():
    zeros = np.zeros(100_000, np.float32)
    frame = pack_broadcast("job", 1, zeros, {"c": zeros}, FLOAT32, compress=True)
    assert len(frame) < 1000
    assert unpack_broadcast(frame, zeros.size)[0].tobytes() == zeros.tobytes()


@pytest.mark.parametrize("code", [codec("int8"), codec("topk")])
def test_a_model_that_stands_for_more_than_the_device_takes_is_refused_before_it_is_made(code):
    """Even a signed one: how many numbers there are says the coordinator, how much memory there is the device."""
    frame = pack_broadcast("job", 1, np.zeros(1000, np.float32), {}, code)
    assert len(unpack_broadcast(frame, 1000, 4000)[0]) == 1000
    with pytest.raises(WireError, match=r"a model of 1000 numbers in .* bytes; the limit is 3999 bytes"):
        unpack_broadcast(frame, 1000, 3999)


def test_a_model_of_another_size_is_refused():
    with pytest.raises(WireError, match=r"'params' must be float32 of shape \(5,\), got float32 of shape \(4,\)"):
        unpack_broadcast(pack_broadcast("job", 1, W, {}, FLOAT32), 5)


# ---- the work ------------------------------------------------------------------------------------------------------


def test_an_answer_says_whose_it_is_and_what_was_done():
    sent, update = opened(worker().work(Task(3, W), MODEL_REF, {}))
    assert (sent.job, sent.run_id, sent.round, sent.device, sent.model) == ("job", "life-1", 3, "pi-1", "model-1")
    assert (update.weight, update.steps) == (12, 2)
    assert np.abs(update.delta).max() > 0


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("table", ["float32", "float16", "int8", {"codec": "topk", "share": 0.5}])
def test_where_nothing_is_sent_the_coordinator_has_the_same_and_the_same_bytes_are_counted(table, compress):
    extra = {"c": np.linspace(0.1, 1, 4, dtype=np.float32), "n": np.array([3]), "none": np.zeros((0, 2), np.float32)}
    coded = codec(table)
    device = worker(
        Says(Update(np.array([1, 1e-3, 0.3, 0.123456], np.float32), 2.5, 1, extra)),
        coded,
        compress=compress,
        pace=0.25,
        held_back=clouds(),
    )
    task, state = Task(2, W, evaluates=1), {"wire/residual": np.full(4, 0.01, np.float32)}
    done, result = device.work(task, MODEL_REF, state), device.result(task, MODEL_REF, state)
    header, frame = read(TO_COORDINATOR, done.frame, limit=1 << 20)
    sent = unpack_answer(header, frame.body, FOUR, coded)
    assert (result.size, result.steps, sent.weight) == (len(done.frame), 1, result.update.weight)
    assert bits({"delta": sent.delta, **sent.extra}) == bits({"delta": result.update.delta, **result.update.extra})
    assert bits(done.kept) == bits(result.kept)
    assert sent.seen.received.table.tolist() == result.update.seen.received.table.tolist()
    assert (sent.seen.received.loss, sent.seen.trained.loss) == (
        result.update.seen.received.loss,
        result.update.seen.trained.loss,
    )
    assert not result.update.delta.flags.writeable  # as what was received


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("name", ["float32", "float16", "int8"])
def test_a_broadcast_that_nobody_sends_is_heard_as_one_that_is(name, compress):
    extra = {"c": np.linspace(0.1, 1, 4, dtype=np.float32), "n": np.array(3)}
    frame = pack_broadcast("job", 1, W, extra, codec(name), compress=compress)
    params, told = unpack_broadcast(frame, 4)
    heard, also, size = heard_broadcast("job", 1, W, extra, codec(name), compress=compress)
    assert (bits({"w": heard, **also}), size) == (bits({"w": params, **told}), len(frame))
    assert not heard.flags.writeable


def test_numbers_that_are_not_finite_are_refused_where_nothing_is_sent():
    with pytest.raises(WireError, match="'c' has numbers that are not finite"):
        worker(Says(Update(W, 1.0, 1, {"c": np.array([np.inf])}))).result(Task(1, W), MODEL_REF, {})


def test_the_same_task_gives_the_same_numbers_and_another_round_others():
    first, again = (opened(worker().work(Task(3, W), MODEL_REF, {}))[1].delta for _ in range(2))
    other = opened(worker(FedAvg(batch=1, batches=2)).work(Task(4, W), MODEL_REF, {}))[1].delta
    assert first.tobytes() == again.tobytes()
    assert first.tobytes() != other.tobytes()


def test_who_watches_hears_of_every_step():
    heard = []
    worker().work(Task(1, W), MODEL_REF, {}, heard.append)
    assert heard == [1, 2]


def test_what_a_lossy_codec_left_out_is_sent_the_next_time():
    """Error feedback: the sum of what arrived follows the sum of what was done."""
    update = Update(np.full(4, 1 + 2**-11, np.float32), 1.0, 1)
    device, state, arrived = worker(Says(update), FLOAT16), {}, np.zeros(4)
    for _ in range(8):
        done = device.work(Task(1, W), MODEL_REF, state)
        arrived += opened(done)[1].delta
        state = done.kept
    assert np.abs(arrived - 8 * update.delta).max() <= 2**-10
    assert np.abs(8 * FLOAT16.encode(update.delta)[1] - 8 * update.delta).max() > 2**-9


def test_what_topk_left_out_waits_until_it_is_large_enough():
    update = Update(np.array([1.0, 0.3, 0.0, 0.0], np.float32), 1.0, 1)
    device, state, arrived = worker(Says(update), codec({"codec": "topk", "share": 0.25})), {}, []
    for round in range(1, 6):
        done = device.work(Task(round, W), MODEL_REF, state)
        arrived.append(opened(done)[1].delta.tolist())
        state = done.kept
    assert [one[0] for one in arrived] == [1.0, 1.0, 1.0, 0.0, 2.0]
    assert arrived[3][1] == pytest.approx(1.2, rel=1e-3)


def test_chance_is_named_by_seed_round_and_device():
    update = Update(np.linspace(0.1, 1, 4, dtype=np.float32), 1.0, 1)
    one, same = worker(Says(update), codec("int8")), worker(Says(update), codec("int8"))
    pairs = [[each.work(Task(round, W), MODEL_REF, {}).frame[-16:] for each in (one, same)] for round in range(1, 9)]
    assert all(first == second for first, second in pairs)
    assert len({bytes(first) for first, _ in pairs}) > 1  # four numbers may well be rounded alike in two rounds


def test_only_the_update_itself_travels_in_few_bytes():
    update = Update(W, 1.0, 1, {"c": np.full(4, 0.1, np.float32)})
    sent, back = opened(worker(Says(update), codec("int8")).work(Task(1, W), MODEL_REF, {}))
    assert [tensor.kind for tensor in sent.tensors] == ["int8", "float32"]
    assert back.extra["c"].tolist() == update.extra["c"].tolist()


@pytest.mark.parametrize("table", [{"codec": "int8"}, {"codec": "topk", "share": 0.5}, {"codec": "float16"}])
def test_a_codec_sees_nothing_of_a_private_device_but_updates_with_their_noise(table):
    """What travels is computed from them alone, so that it costs no more than they do; the residual is theirs too."""
    private = FedProx(batches=2, privacy=Output(clips="update", clip=1.0, sigma=5.0))
    plain, coded, noised, residual = worker(private), worker(private, codec(table)), [], {}
    left = np.zeros(4, np.float32)
    for round in (1, 2, 3):
        chance = seeds.stream(7, round, "pi-1", "codec")
        noised.append(opened(plain.work(Task(round, W), MODEL_REF, {}))[1].delta)
        done = coded.work(Task(round, W), MODEL_REF, residual)
        expected = codec(table).encode(noised[-1] + left, Tiny().layout, chance)[1]
        assert opened(done)[1].delta.tobytes() == expected.tobytes()
        left, residual = noised[-1] + left - expected, done.kept


@pytest.mark.parametrize("table", [{"codec": "float32"}, {"codec": "int8"}, {"codec": "topk", "share": 0.5}])
def test_a_device_that_hides_its_work_answers_alike_whether_it_left_the_finite_numbers_or_not(table):
    noise = Output(clips="update", clip=1.0, sigma=5.0)
    private = FedProx(epochs=7, batch=5, lr=1.0, weights="batch", privacy=noise)
    said = []
    for factor in (1.0, 1e30):
        data = replace(clouds(), x=clouds().x * np.float32(factor))
        device = replace(worker(private, codec(table)), data=data, hides=True)
        done = device.work(Task(1, W, Budget(seconds=None)), MODEL_REF, {})
        header, update = opened(done)
        assert np.isfinite(update.delta).all()
        said.append((header, len(done.frame), done.steps, done.seconds_per_step))
    assert said[0] == said[1]
    assert said[0][2:] == (21, 0.0)


def test_others_say_that_it_did():
    private = FedProx(epochs=7, batch=5, lr=1.0, privacy=Output(clips="update", clip=1.0, sigma=5.0))
    with pytest.raises(Diverged):
        replace(worker(private), data=replace(clouds(), x=clouds().x * 1e30)).work(Task(1, W), MODEL_REF, {})


def test_the_algorithm_never_sees_the_residual():
    says = Says(Update(W, 1.0, 1))
    device = worker(says, FLOAT16)
    device.work(Task(2, W), MODEL_REF, device.work(Task(1, W), MODEL_REF, {}).kept)
    assert [set(state) for state in says.seen] == [set(), {"own"}]


def test_a_lossless_codec_keeps_no_residual():
    assert set(worker(Says(Update(W, 1.0, 1))).work(Task(1, W), MODEL_REF, {}).kept) == {"own"}


# ---- the pace of a device that is simulated --------------------------------------------------------------------------


def test_a_device_that_is_simulated_says_the_pace_it_was_given_and_the_steps_it_made():
    done = worker(FedAvg(batches=3), pace=0.25).work(Task(1, W), MODEL_REF, {})
    assert (opened(done)[0].seconds_per_step, done.seconds_per_step, done.steps) == (0.25, 0.25, 3)


@pytest.mark.parametrize(("seconds", "steps"), [(0.1, 1), (0.5, 2), (0.6, 3), (9.0, 4)])
def test_its_seconds_are_counted_in_steps_and_the_bits_are_those_of_as_many_steps(seconds, steps):
    timed = worker(FedAvg(batches=4), pace=0.25).work(Task(1, W, Budget(seconds=seconds)), MODEL_REF, {})
    plain = worker(FedAvg(batches=4)).work(Task(1, W, Budget(batches=steps)), MODEL_REF, {})
    assert timed.steps == steps
    assert opened(timed)[1].delta.tobytes() == opened(plain)[1].delta.tobytes()


def test_who_watches_a_device_that_is_simulated_hears_of_every_step():
    heard = []
    worker(FedAvg(batches=3), pace=1.0).work(Task(1, W), MODEL_REF, {}, heard.append)
    assert heard == [1, 2, 3]


# ---- the way back --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["delta", "extra/c"])
def test_numbers_that_are_not_finite_are_refused_and_named(bad, name):
    arrays = {"delta": W, "extra/c": W}
    arrays[name] = np.array([0, 0, bad, 0], np.float32)
    with pytest.raises(WireError, match=name.removeprefix("extra/")) as caught:
        unpack_answer(*answer(arrays), FOUR)
    assert caught.value.code == "update.not_finite"


@pytest.mark.parametrize("delta", [W[:3], W.reshape(2, 2), W.astype(np.float64), np.arange(4)])
def test_a_delta_of_another_shape_or_type_is_refused(delta):
    with pytest.raises(WireError) as caught:
        unpack_answer(*answer({"delta": delta}), FOUR)
    assert caught.value.code == "wire.shape"


def test_an_answer_without_a_delta_is_refused():
    with pytest.raises(WireError, match="got nothing"):
        unpack_answer(*answer({"extra/c": W}), FOUR)


def test_a_tensor_that_is_no_part_of_an_answer_is_refused_by_name():
    with pytest.raises(WireError, match=r"'\.\./\.\./x' is no part of an answer") as refused:
        unpack_answer(*answer({"delta": W, "../../x": W, "extra/c": W}), FOUR)
    assert refused.value.code == "update.unknown_tensor"


@pytest.mark.parametrize("weight", [0, -1, 2**63, float("nan"), float("inf")])
def test_a_weight_that_is_none_is_refused(weight):
    with pytest.raises(ValidationError):
        answer({"delta": W}, weight)
