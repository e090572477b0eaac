"""What is done to updates: one list of transforms, declared by the run file; one that hides single updates fits in."""

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pytest
from tiny import Tiny

from coordinator.durable.answer_store import reader
from edgefl.base import seeds
from edgefl.base.errors import ConfigError, WireError
from edgefl.base.vector import State
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.job.run.job import device_names
from edgefl.job.transforms.coding import RESIDUAL, Coding, ErrorFeedback, coding
from edgefl.job.transforms.listing import device_transforms, transforms_of
from edgefl.job.transforms.sealing import Sealing
from edgefl.job.transforms.transform import (
    SUM,
    AnswerSet,
    CoordinatorContext,
    DeviceContext,
    OnNumbers,
    VectorForm,
    at_coordinator,
    at_device,
    summed,
)
from edgefl.job.transforms.update_bounds import UpdateBounds
from edgefl.learn import robustness
from edgefl.learn.contract import Budget, Task, Update
from edgefl.learn.robustness import Caps
from edgefl.sim.emulator import emulate
from edgefl.sim.engines import NOWHERE, DeviceOrder, InProcessEngine
from edgefl.sim.loop import opened_update, simulate
from edgefl.wire import frames
from edgefl.wire.codecs import codec
from edgefl.wire.messages import TO_COORDINATOR, peek
from edgefl.wire.sealing import Opener
from edgefl.wire.signing import Signer

DEVICES = device_names(4)
STEP = 2.0**-16  # of the grid that updates are rounded to
CONTEXT = CoordinatorContext(1, Tiny().layout)


@dataclass(frozen=True, kw_only=True)
class Masked(OnNumbers):
    """Invented for this test: integers modulo 2^64, and masks of pairs of devices that cancel in the sum."""

    name: str = "test.masked"
    hides: bool = True
    masks: bool = True
    sums: list[Update] = field(default_factory=list)  # what the coordinator half was given

    def form(self, form: VectorForm) -> VectorForm:
        return VectorForm(form.size + 1, np.uint64)  # the weight travels behind the update

    def device(self, update: Update, kept: State, context: DeviceContext) -> tuple[Update, State]:
        weighted = np.rint(update.delta.astype(np.float64) * update.weight / STEP)
        ring = np.append(weighted, update.weight).astype(np.int64).view(np.uint64)
        for other in DEVICES if self.masks else ():
            pair = sorted((context.device, other))
            mask = seeds.stream(context.seed, context.round, *pair, "mask").integers(0, 2**64, len(ring), np.uint64)
            if other != context.device:
                ring += mask if context.device == pair[0] else -mask
        return Update(ring, 1.0, update.steps), kept

    def coordinator(self, answers: AnswerSet, context: CoordinatorContext) -> AnswerSet:
        (total,) = answers.updates.values()
        self.sums.append(total)
        numbers = total.delta.view(np.int64).astype(np.float64)
        mean = (numbers[:-1] * STEP / numbers[-1]).astype(np.float32)
        return replace(answers, updates={SUM: replace(total, delta=mean, weight=float(numbers[-1]))})


def masked(run: RunFile, hiding: Masked) -> tuple:
    """Return the run's own list with one more transform, in front of the codec."""
    own = transforms_of(run)
    at = next(i for i, one in enumerate(own) if isinstance(one, Coding))
    return (*own[:at], hiding, *own[at:])


class MaskedRun(RunFile):
    """A run file that declares it."""

    @cached_property
    def transforms(self):
        return masked(self, Masked())


class RoundedRun(RunFile):
    """The same without masks: integers alone."""

    @cached_property
    def transforms(self):
        return masked(self, Masked(masks=False))


TABLE = {
    "run": {"name": "masked", "rounds": 3, "seed": 5},
    "task": {"data": "synthetic", "model": "softmax", "partition": {"kind": "dirichlet", "omega": 0.5, "devices": 4}},
    "rounds": {"quorum": 4},
    "guards": {"bounds": False},
}


def read(kind=RunFile, **sections):
    return parse(kind, TABLE | sections, "run.toml", environment={})


def prepared(run):
    job, split = jobs.prepare(run)
    return job, dict(zip(DEVICES, split.devices, strict=True))


# ---- the list ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sections", "names"),
    [
        ({"guards": {}}, ["guards.bounds", "error feedback", "wire.up.codec = 'float32'"]),
        ({"wire": {"codec": "int8", "seal": True}}, ["error feedback", "wire.up.codec = 'int8'", "wire.seal"]),
        (
            {"algorithm": {"name": "fedprox"}, "privacy": {"mechanism": "objective"}},
            ["privacy.mechanism = 'objective'", "error feedback", "wire.up.codec = 'float32'"],
        ),
    ],
)
def test_a_run_file_declares_its_list_in_the_order_of_the_device(sections, names):
    assert [transform.name for transform in read(**sections).transforms] == names


def test_a_device_has_the_part_of_the_list_that_is_carried_out_where_it_trains():
    run = read(guards={}, wire={"up": {"codec": "topk", "share": 0.1}, "seal": True})
    _, *here, _ = run.transforms
    assert device_transforms(run.make_algorithm(), run.wire.up_codec()) == tuple(here)


def test_a_copy_of_a_run_file_with_other_rules_has_another_list():
    run = read()
    bounded = run.model_copy(update={"guards": run.guards.model_copy(update={"bounds": True})})
    assert [one.name for one in bounded.transforms[: -len(run.transforms)]] == ["guards.bounds"]


def test_what_each_asks_of_others_is_what_it_does():
    said = {
        one.name: (one.needs_single, one.commutes, one.hides) for one in read(guards={}, wire={"seal": True}).transforms
    }
    assert said == {
        "guards.bounds": (True, False, False),
        "error feedback": (False, True, False),
        "wire.up.codec = 'float32'": (True, True, False),
        "wire.seal": (True, True, False),
    }
    assert not any(coding(codec(name)).commutes for name in ("float16", "int8", "topk"))


# ---- the halves ----------------------------------------------------------------------------------------------------


def test_device_halves_go_from_first_to_last_and_coordinator_halves_back():
    heard = []

    @dataclass(frozen=True, kw_only=True)
    class Heard(OnNumbers):
        def device(self, update, kept, context):
            heard.append(("device", self.name))
            return update, kept

        def coordinator(self, answers, context):
            heard.append(("coordinator", self.name))
            return answers

    both, update = (Heard(name="a"), Heard(name="b")), Update(np.zeros(4, np.float32), 1.0, 1)
    at_device(both, update, {}, DeviceContext(0, 1, "d", Tiny().layout))
    at_coordinator(both, AnswerSet({"d": update}), CONTEXT)
    assert heard == [("device", "a"), ("device", "b"), ("coordinator", "b"), ("coordinator", "a")]


def test_what_the_codec_leaves_out_is_what_error_feedback_adds_to_the_next_update():
    update, int8 = Update(np.array([1.0, 0.3, 0.01, -0.7], np.float32), 1.0, 1), coding(codec("int8"))
    first = DeviceContext(7, 1, "d", Tiny().layout)
    coded, kept = int8.device(update, {"own": np.ones(1)}, first)
    left = update.delta - coded.arrays["delta"]
    assert set(kept) == {"own", RESIDUAL}
    assert kept[RESIDUAL].tobytes() == left.tobytes()
    assert np.abs(left).max() > 0
    again, _ = at_device((ErrorFeedback(), int8), update, {}, replace(first, round=2, state=kept))
    assert again.delta.tobytes() == (update.delta + left).tobytes()


def test_bounds_change_the_answers_and_remember_what_is_usual():
    updates = {f"d{i}": Update(np.full(4, 1.0 if i else 1e3, np.float32), 1.0, 1) for i in range(4)}
    caps, states = Caps(weight=5.0, norm=4.0, extra=10.0), {"mean": {"kept": np.ones(1)}}
    after = at_coordinator((UpdateBounds(caps=caps),), AnswerSet(updates, {}, states), CONTEXT)
    expected = robustness.bound(updates, {}, {}, trainable=4, caps=caps)
    assert after.updates["d0"].delta.tobytes() == expected.updates["d0"].delta.tobytes()
    assert (set(after.bounded), set(after.states)) == ({"d0"}, {"mean", robustness.NAME})


def test_a_sealed_frame_is_opened_and_an_open_one_only_where_that_will_do():
    opener, plain = Opener(Signer.new()), frames.pack({"kind": "answer"}, [b"body"])
    seal = Sealing()
    unread = frames.peek(seal.device(plain, opener.key))
    assert unread.sealed
    assert bytes(seal.coordinator(unread, 4, opener, required=True)) == b"body"
    assert bytes(seal.coordinator(frames.peek(plain), 4, opener, required=False)) == b"body"
    with pytest.raises(WireError, match="an open answer"):
        seal.coordinator(frames.peek(plain), 4, opener, required=True)


# ---- one that hides single updates ---------------------------------------------------------------------------------


def test_integers_are_added_modulo_their_range_in_any_order():
    updates = {
        name: Update(np.array([2**32 - 1, i], np.uint32), 1.0, 2, {"n": np.array(i)}) for i, name in enumerate("abc")
    }
    total, same = summed(updates), summed(dict(reversed(updates.items())))
    assert total.delta.tolist() == same.delta.tolist() == [2**32 - 3, 3]
    assert (total.weight, total.steps, total.devices, total.extra["n"].item()) == (3.0, 6, 3, 3)
    assert updates["a"].delta.tolist() == [2**32 - 1, 0], "what came is left as it is"


def test_its_coordinator_half_sees_the_sum_alone_and_the_stages_one_answer_for_all():
    plain, hiding = Update(np.array([0.5, -0.25, 1, 0], np.float32), 3.0, 1), Masked()
    context = DeviceContext(5, 1, DEVICES[0], Tiny().layout)
    sent = {
        device: hiding.device(replace(plain, weight=1.0 + i), {}, replace(context, device=device))[0]
        for i, device in enumerate(DEVICES)
    }
    bare = Masked(masks=False).device(plain, {}, context)[0]
    assert not (sent[DEVICES[0]].delta == bare.delta).any(), "a single update says nothing"
    after = at_coordinator((hiding,), AnswerSet(sent), CONTEXT)
    assert [one.devices for one in hiding.sums] == [4]
    assert list(after.updates) == [SUM]
    one = after.updates[SUM]
    assert (one.delta.tolist(), one.weight, one.devices) == (plain.delta.tolist(), 10.0, 4)


def test_a_round_that_needs_no_device_has_nothing_to_add_up():
    assert at_coordinator((Masked(),), AnswerSet({}), CONTEXT) == AnswerSet({})


def test_masks_cancel_in_the_loop_and_behind_the_wire_and_leave_the_bits_of_the_integers_alone():
    job, devices = prepared(read(MaskedRun))
    told = []
    run_state = simulate(job, devices, told.append)
    assert run_state.sha256() == simulate(*prepared(read(RoundedRun))).sha256()
    assert emulate(job, devices).sha256() == run_state.sha256()
    (hiding,) = (one for one in job.run.transforms if isinstance(one, Masked))
    assert [(one.delta.dtype, one.devices) for one in hiding.sums] == [(np.uint64, 4)] * 6
    plain = simulate(*prepared(read()))
    np.testing.assert_allclose(run_state.params, plain.params, atol=1e-4)
    assert run_state.sha256() != plain.sha256()


def test_an_update_of_another_form_than_the_run_s_list_gives_is_refused():
    job, devices = prepared(read(MaskedRun))
    order = DeviceOrder(DEVICES[0], Task(1, job.start, Budget(batches=1)), {})
    (done,) = InProcessEngine(job, devices).train(NOWHERE, [order])
    update = opened_update(job, done.frame)
    assert update.delta.shape == (job.model.layout.size + 1,)
    answer, _ = peek(TO_COORDINATOR, done.frame)
    again = reader(job, answer, lambda: memoryview(done.frame), None)()  # from the journal, when it is merged
    assert again.delta.tobytes() == update.delta.tobytes()
    with pytest.raises(WireError, match=r"'delta' must be float32 of shape \(\d+,\), got uint64 of shape"):
        opened_update(replace(job, run=read()), done.frame)


# ---- what it cannot stand beside -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sections", "needing"),
    [
        ({"aggregation": [{"name": "mean"}, {"name": "sgc"}]}, "stage 'sgc' of this run needs them"),
        ({"algorithm": {"name": "scaffold"}}, "stage 'variates' of this run needs them"),
        ({"guards": {}}, "guards.bounds of this run needs them"),
        ({"guards": {"bounds": False, "trust": "majority"}}, "stage 'norm_clip', stage 'median' of this run need them"),
        ({"guards": {"bounds": False, "speaks_for": 3}}, "guards.speaks_for = 3 of this run needs them"),
        ({"rounds": {"late": "discount"}}, "rounds.late = 'discount' of this run needs them"),
        ({"rounds": {"mode": "buffered"}}, "rounds.mode = 'buffered' of this run needs them"),
        ({"run": {"forgetting": True}}, "run.forgetting = true of this run needs them"),
        (
            {"guards": {}, "aggregation": [{"name": "mean"}, {"name": "memory"}]},
            "guards.bounds, stage 'memory' of this run need them",
        ),
    ],
)
def test_what_needs_single_updates_behind_a_transform_that_hides_them_is_refused_and_both_are_named(sections, needing):
    with pytest.raises(ConfigError, match=f"^run.toml: test.masked hides single updates, and {needing}"):
        read(MaskedRun, **sections)
    read(**sections)


@pytest.mark.parametrize("name", ["float16", "int8", "topk"])
def test_a_codec_that_changes_a_sum_is_refused_beside_it(name):
    with pytest.raises(
        ConfigError, match=f"test.masked adds updates up before they are read, and wire.up.codec = '{name}'"
    ):
        read(MaskedRun, wire={"up": {"codec": name}})
