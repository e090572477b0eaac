"""One device's work on one round, the same in a loop and on a Raspberry Pi: broadcast in, answer out, as real bytes."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from edgefl.base import seeds
from edgefl.base.errors import Diverged, WireError
from edgefl.base.vector import Array, Layout, State, Vector
from edgefl.job.run import reported_loss, statistics
from edgefl.job.transforms.coding import DELTA, EXTRA, RESIDUAL, Coded, Coding, coding, encoded
from edgefl.job.transforms.transform import DeviceContext, Transform, VectorForm, at_device, form_sent
from edgefl.learn.contract import (
    Algorithm,
    Augmenting,
    Counts,
    Seen,
    Site,
    Task,
    Update,
    is_personal,
    rate,
    unwatched,
)
from edgefl.learn.data.augment import augmented
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.data.description import LeftOut
from edgefl.learn.evaluation import counts
from edgefl.learn.losses import Loss
from edgefl.learn.models.base import Model
from edgefl.learn.privacy.entropy import Entropy
from edgefl.learn.privacy.private import is_private
from edgefl.learn.selection.base import Kind
from edgefl.learn.training.divergence import check_length, likely_cause, quiet, usual_causes
from edgefl.learn.training.rates import scheduled
from edgefl.system import blas
from edgefl.wire import tensors
from edgefl.wire.codecs import CODECS, Codec
from edgefl.wire.messages import BROADCAST, Answer, Broadcast, frame, frame_size, read

NOTHING: Vector = np.zeros(0, np.float32)  # the delta of a device that did not train
OWN, SHARED = "own", "shared"  # of `WorkResult.own`: the device's model, and the shared one that it received
UNKNOWN = 16  # models that a frame may hold where nothing else is known about it
_PARAMS = "params"
_RECEIVED, _TRAINED = "received/", "trained/"  # what was counted of the one model and of the other


def pack_broadcast(
    job: str,
    round: int,
    params: Vector,
    extra: State,
    codec: Codec,
    *,
    layout: Layout | None = None,
    compress: bool = False,
) -> bytes:
    """The frame that tells every device the model of a round and what the plan added."""
    coded = encoded((_PARAMS, params), extra, codec, layout)
    return frame(Broadcast(job=job, round=round, tensors=coded.described), coded.parts, compress=compress)


def heard_broadcast(  # noqa: PLR0917 - as `pack_broadcast`
    job: str, round: int, params: Vector, extra: State, codec: Codec, layout: Layout | None = None, *, compress: bool
) -> tuple[Vector, State, int]:
    """Return what devices have of a broadcast that is not sent: model, additions, and the size of its frame."""
    coded = encoded((_PARAMS, params), extra, codec, layout)
    size = frame_size(Broadcast(job=job, round=round, tensors=coded.described), coded.parts, compress=compress)
    arrays = _read_only(coded.arrays)
    return arrays[_PARAMS], _extra(arrays), size


def unpack_broadcast(
    data: bytes | bytearray, size: int, most: int | None = None, codec: Codec | None = None
) -> tuple[Vector, State]:
    """The model and the plan's additions behind a broadcast, which takes `most` bytes when it is opened."""
    limit = plain_limit(data, size)
    broadcast, opened = read(BROADCAST, data, limit=limit if most is None else min(limit, most))
    if most is not None and 4 * size > most and tensors.stands_for_more(broadcast.tensors, codec):
        raise WireError("wire.too_large", f"a model of {size} numbers in {len(data)} bytes; the limit is {most} bytes")
    arrays = tensors.decode(broadcast.tensors, opened.body, {_PARAMS: size}, codec)
    return _vector(arrays, _PARAMS, VectorForm(size)), _extra(arrays)


def received(params: Vector, codec: Codec, layout: Layout) -> Vector:
    """A model as devices have it from its broadcast."""
    return codec.encode(params, layout)[1]


def plain_limit(data: bytes | bytearray, size: int) -> int:
    """How large the body of a frame may become: zeros compress without end, so the model's size counts as well."""
    return 4 * len(data) + UNKNOWN * 4 * size + (1 << 20)


@dataclass(frozen=True, slots=True)
class WorkResult:
    """A round's work: the frame to send, what the device keeps once it is accepted, its steps and their pace."""

    frame: bytes | bytearray
    kept: State
    seconds_per_step: float
    steps: int = 0
    own: State = field(
        default_factory=dict
    )  # the device's own model, if it is to be kept (device_agent/durable/own_models.py)


@dataclass(frozen=True, slots=True)
class Result:
    """The same where nothing is sent: what the coordinator would have of the frame, and its size in bytes."""

    update: Update
    kept: State
    size: int
    steps: int = 0


@dataclass(frozen=True, slots=True)
class _Worked:
    """A round's work before anything is packed."""

    answer: Answer
    coded: Coded
    kept: State


@dataclass(frozen=True, slots=True)
class ModelRef:
    """Where a task belongs on the wire: the run of its job, and the id of its model."""

    run_id: str
    model: str


@dataclass(frozen=True, slots=True)
class Worker:
    """One device as far as training goes: everything about it that stays the same from round to round."""

    job: str
    device: str
    algorithm: Algorithm
    model: Model
    data: Dataset
    loss: Loss
    transforms: tuple[Transform, ...]  # of the run, as far as a device knows them
    seed: int
    compress: bool = False
    secret: bool = False  # a real device: the noise of a private version is its own
    held_back: Dataset | None = None  # what it never trains on, where models are evaluated on devices
    describes: bool = True  # whether sums over its data may be told
    left_out: LeftOut = ()  # rows of its data that no sum is over which leaves the device
    hides: bool = False  # how the work went: a private update tells no pace, and no walk ends early
    pace: float | None = (
        None  # seconds that a step takes on the clock of a device that is simulated; None: they are measured
    )

    @property
    def coding(self) -> Coding:
        """The transform that makes bytes of an update."""
        return next(transform for transform in self.transforms if isinstance(transform, Coding))

    def work(
        self, task: Task, model_ref: ModelRef, state: State, watch: Callable[[int], None] | None = None
    ) -> WorkResult:
        """Do what the task asks for, which has this place on the wire."""
        worked = self._worked(task, model_ref, state, watch)
        packed, answer = frame(worked.answer, worked.coded.parts, compress=self.compress), worked.answer
        return WorkResult(packed, worked.kept, answer.seconds_per_step, answer.steps)

    def passed_on(self, task: Task, model_ref: ModelRef, update: Update, state: State) -> WorkResult:
        """The answer with an update that others have made: a gateway's."""
        worked = self._done(task, model_ref, update, {}, state)
        packed = frame(worked.answer, worked.coded.parts, compress=self.compress)
        return WorkResult(packed, worked.kept, 0.0, update.steps)

    def result(self, task: Task, model_ref: ModelRef, state: State) -> Result:
        """Do what the task asks for, where the bytes are not needed."""
        worked = self._worked(task, model_ref, state)
        form = form_sent(self.transforms, self.model.layout)
        update = _update(worked.answer, _read_only(worked.coded.arrays), form)
        size = frame_size(worked.answer, worked.coded.parts, compress=self.compress)
        return Result(update, worked.kept, size, worked.answer.steps)

    def _worked(
        self, task: Task, model_ref: ModelRef, state: State, watch: Callable[[int], None] | None = None
    ) -> _Worked:
        if task.purpose == "describe":
            with blas.one_thread():
                told = statistics.answer(self.data, task.extra, silent=not self.describes, described=state)
            return self._done(task, model_ref, Update(NOTHING, 1.0, 0, told), {}, state)
        extra, model, loss = statistics.applied(task.extra, self.model, self.loss)
        here = self
        if extra is not task.extra:  # something was told
            here, task = replace(self, model=model, loss=loss), replace(task, extra=extra)
        with blas.one_thread():  # once, for all that follows
            return here.carry_out(task, model_ref, state, watch)

    def carry_out(self, task: Task, model_ref: ModelRef, state: State, watch: Callable[[int], None] | None) -> _Worked:
        """Evaluate, and train if that is asked for, with the model and the loss that are in force."""
        extra, asked = reported_loss.taken(task.extra)
        task = task if extra is task.extra else replace(task, extra=extra)
        own = {key: value for key, value in state.items() if key != RESIDUAL}
        received = self._counts(task, task.params, own)
        if received is not None and not np.isfinite(received.loss):
            cause = usual_causes(rate(self.algorithm))
            why = f"device '{self.device}', round {task.round}: the model's loss is not finite; {cause}"
            raise Diverged(why, free_of_data=True)
        if task.purpose == "evaluate":
            return self._done(task, model_ref, Update(NOTHING, 1.0, 0, seen=_seen(received)), {}, state)
        rng = seeds.stream(self.seed, task.round, self.device)
        noise = Entropy() if self.secret else None
        site = Site(
            self.model,
            self._samples(task),
            rng,
            self.loss,
            watch or unwatched,
            noise,
            left_out=self.left_out,
            unbroken=self.hides,
        )
        if self.pace is not None:
            site = _paced(site, self.pace)
        # A private run asks for none; nor is one told if its coordinator asks all the same: it has no noise.
        private = is_private(self.algorithm) and self.algorithm.privacy is not None
        loss = None if asked is None or private else self._loss(asked, task, own)
        began = site.timer()
        update, kept = self._train(task, own, site)
        trained = None if received is None else self._counts(task, task.params + update.delta, kept)
        pace = (site.timer() - began) / max(1, update.steps)
        if self.pace is not None and not is_personal(self.algorithm):  # who walks twice answers for one walk
            pace = self.pace
        if self.hides:
            pace = 0.0  # not told
        update = replace(update, seen=_seen(received, trained), loss=loss)
        return self._done(task, model_ref, update, kept, state, pace)

    def _done(  # noqa: PLR0917 - the answer's parts, and what the device kept before
        self, task: Task, model_ref: ModelRef, update: Update, kept: State, state: State, pace: float = 0.0
    ) -> _Worked:
        """The answer with this update behind the run's transforms, or with what was seen alone."""
        coding = self.coding
        coded = coding.beside(_prefixed(update.extra) if task.purpose == "describe" else _counted(update.seen))
        if task.purpose == "train":
            context = DeviceContext(self.seed, task.round, self.device, self.model.layout, state)
            update, kept = at_device(self.transforms, update, kept, context)
            sent, kept = coding.device(update, kept, context)
            coded = sent + coding.beside(reported_loss.arrays(update.loss)) + coded
        answer = Answer(
            job=self.job,
            run_id=model_ref.run_id,
            round=task.round,
            purpose=task.purpose,
            device=self.device,
            model=model_ref.model,
            weight=update.weight,
            steps=update.steps,
            seconds_per_step=pace,
            devices=update.devices,
            tensors=coded.described,
        )
        return _Worked(answer, coded, kept)

    def _own(self, params: Vector, state: State) -> Vector:
        """The model this device would use: the one it received, unless its algorithm leaves it one of its own."""
        return self.algorithm.own(params, state, self.model.layout) if is_personal(self.algorithm) else params

    def _samples(self, task: Task) -> Dataset:
        """What is trained on in this round."""
        if not isinstance(self.algorithm, Augmenting) or not self.algorithm.augment:
            return self.data
        chance = seeds.stream(self.seed, task.round, self.device, "augment")
        return augmented(self.data, self.algorithm.augment, chance)

    def _loss(self, kind: Kind, task: Task, state: State) -> float | None:
        """What the run's selection wants to know of the model before it is trained."""
        own, about = self._own(task.params, state), (self.device, self.left_out)
        with quiet():
            return reported_loss.measured(kind, self.model, own, self.data, self.loss, *about)

    def _counts(self, task: Task, params: Vector, state: State) -> Counts | None:
        """What the model this device would use does on the data set aside, if that is asked for and they are enough."""
        if task.evaluates is None or self.held_back is None or len(self.held_back) < task.evaluates:
            return None
        with quiet():
            return counts.count(self.model, self._own(params, state), self.held_back, self.loss)

    def _train(self, task: Task, state: State, site: Site) -> tuple[Update, State]:
        """The device half; learning that leaves the finite numbers, or all measure, ends with its likely cause."""
        try:
            with quiet():
                update, kept = scheduled(self.algorithm, task.round).train(task, state, site)
            if not self.hides:
                check_length(update.delta, task.params)
        except Diverged as error:
            lr = rate(self.algorithm)
            what = f"device '{self.device}', round {task.round}, {error}"
            cause, told = likely_cause(self.data, lr), usual_causes(lr)
            where = f"device '{self.device}', round {task.round}, learning left the finite numbers, or all measure"
            raise Diverged(f"{what}; {cause}", told=f"{where}; {told}") from None
        return update, kept


def _paced(site: Site, pace: float) -> Site:
    """The site, on a clock that goes on by `pace` seconds with every step and stands still between them."""
    steps = 0

    def watch(done: int) -> None:
        nonlocal steps
        steps += 1
        site.watch(done)

    return replace(site, watch=watch, timer=lambda: steps * pace)


def unpack_answer(
    answer: Answer, body: memoryview, form: VectorForm, codec: Codec = CODECS["float32"], *, known: bool = False
) -> Update:
    """The update behind an answer, if its numbers can be used at all; `codec` is the run's, which may not be ours.

    One that is `known` is not looked through for numbers that are not finite: it was, or will be.
    """
    arrays = coding(codec).coordinator(answer.tensors, body, form.size)
    return _update(answer, arrays, form, known=known)


def _update(answer: Answer, arrays: State, form: VectorForm, *, known: bool = False) -> Update:
    for name in arrays:
        if name not in {DELTA, reported_loss.NAME} and not name.startswith((EXTRA, _RECEIVED, _TRAINED)):
            raise WireError("update.unknown_tensor", f"'{name}' is no part of an answer")
    delta = _vector(arrays, DELTA, form) if answer.purpose == "train" or DELTA in arrays else NOTHING
    received, trained = (_read(arrays, prefix) for prefix in (_RECEIVED, _TRAINED))
    seen, loss = _seen(received, trained), reported_loss.read(arrays)
    update = Update(delta, answer.weight, answer.steps, _extra(arrays), seen, answer.devices, loss)
    for name, array in () if known else (("delta", update.delta), *update.extra.items()):
        must_be_finite(name, array)
    return update


def must_be_finite(name: str, array: Array) -> None:
    """Refuse an array of an answer that cannot be used."""
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise WireError("update.not_finite", f"'{name}' has numbers that are not finite")


def _read_only(arrays: State) -> State:
    """Return read-only views, like those of a frame that was received."""
    views = {name: array.view() for name, array in arrays.items()}
    for view in views.values():
        view.flags.writeable = False
    return views


def _seen(received: Counts | None, trained: Counts | None = None) -> Seen | None:
    """What can be told: of a model that a device has spoiled for itself, nothing."""
    if received is None:
        return None
    return Seen(received, trained if trained is not None and np.isfinite(trained.loss) else None)


def _counted(seen: Seen | None) -> State:
    """What was seen, as it travels."""
    arrays: State = {} if seen is None else _prefixed(counts.arrays(seen.received), _RECEIVED)
    if seen is not None and seen.trained is not None:
        arrays |= _prefixed(counts.arrays(seen.trained), _TRAINED)
    return arrays


def _read(arrays: State, prefix: str) -> Counts | None:
    named = _named(arrays, prefix)
    return counts.read(named) if named else None


def _prefixed(named: State, prefix: str = EXTRA) -> State:
    return {prefix + key: value for key, value in named.items()}


def _extra(arrays: State) -> State:
    return _named(arrays, EXTRA)


def _named(arrays: State, prefix: str) -> State:
    return {key.removeprefix(prefix): value for key, value in arrays.items() if key.startswith(prefix)}


def _vector(arrays: State, name: str, form: VectorForm) -> Vector:
    v = arrays.get(name)
    if v is None or v.shape != (form.size,) or v.dtype != form.dtype:
        seen = "nothing" if v is None else f"{v.dtype} of shape {v.shape}"
        expected = f"{np.dtype(form.dtype)} of shape ({form.size},)"
        raise WireError("wire.shape", f"'{name}' must be {expected}, got {seen}")
    return v
