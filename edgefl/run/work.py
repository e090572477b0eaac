"""One device's work on one round, the same in a loop and on a Raspberry Pi: broadcast in, answer out, as real bytes."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from edgefl import seeds
from edgefl.contract import Algorithm, Site, Task, Update, rate
from edgefl.data.dataset import Dataset
from edgefl.errors import Diverged, WireError
from edgefl.losses import Loss
from edgefl.models.base import Model
from edgefl.privacy import Price
from edgefl.privacy.entropy import Entropy
from edgefl.privacy.private import Private
from edgefl.protocol import tensors
from edgefl.protocol.codecs import Codec, beside
from edgefl.protocol.messages import BROADCAST, Answer, Broadcast, Tensor, frame, read
from edgefl.system import blas
from edgefl.training.divergence import check_length, likely_cause, quiet
from edgefl.vector import Layout, State, Vector

UNKNOWN = 16  # models that a frame may hold where nothing else is known about it
_PARAMS, _DELTA, _EXTRA = "params", "delta", "extra/"
_RESIDUAL = "wire/residual"  # what a lossy codec left out, added to the next update


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
    described, parts, _ = _encoded((_PARAMS, params), extra, codec, layout)
    return frame(Broadcast(job=job, round=round, tensors=described), parts, compress=compress)


def unpack_broadcast(
    data: bytes | bytearray, size: int, most: int | None = None, codec: Codec | None = None
) -> tuple[Vector, State]:
    """The model and the plan's additions behind a broadcast, which takes `most` bytes when it is opened."""
    limit = plain_limit(data, size)
    broadcast, opened = read(BROADCAST, data, limit=limit if most is None else min(limit, most))
    if most is not None and 4 * size > most and tensors.stands_for_more(broadcast.tensors, codec):
        raise WireError("wire.too_large", f"a model of {size} numbers in {len(data)} bytes; the limit is {most} bytes")
    arrays = tensors.decode(broadcast.tensors, opened.body, {_PARAMS: size}, codec)
    return _vector(arrays, _PARAMS, size), _extra(arrays)


def received(params: Vector, codec: Codec, layout: Layout) -> Vector:
    """A model as devices have it from its broadcast."""
    return codec.encode(params, layout)[1]


def plain_limit(data: bytes | bytearray, size: int) -> int:
    """How large the body of a frame may become: zeros compress without end, so the model's size counts as well."""
    return 4 * len(data) + UNKNOWN * 4 * size + (1 << 20)


@dataclass(frozen=True, slots=True)
class Done:
    """A round's work: the frame to send, what the device keeps once it is accepted, its steps and their pace."""

    frame: bytes | bytearray
    kept: State
    seconds_per_step: float
    steps: int = 0


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
    codec: Codec
    seed: int
    compress: bool = False
    secret: bool = False  # a real device: the noise of a private version is its own
    pace: float | None = (
        None  # seconds that a step takes on the clock of a device that is simulated; None: they are measured
    )

    def price(self, round: int) -> Price | None:
        """What must be counted when this round's update is computed, if the algorithm promises privacy."""
        if not isinstance(self.algorithm, Private):
            return None
        return self.algorithm.price(round, len(self.data), self.model.layout)

    def work(self, task: Task, model_ref: ModelRef, state: State, watch: Callable[[int], None] | None = None) -> Done:
        """Train on the task, which has this place on the wire."""
        rng = seeds.stream(self.seed, task.round, self.device)
        site = Site(self.model, self.data, rng, self.loss, noise=Entropy() if self.secret else None)
        site = replace(site, watch=watch) if watch else site
        if self.pace is not None:
            site = _paced(site, self.pace)
        own = {key: value for key, value in state.items() if key != _RESIDUAL}
        began = site.timer()
        with blas.one_thread():
            update, kept = self._train(task, own, site)
        pace = (site.timer() - began) / max(1, update.steps) if self.pace is None else self.pace
        delta = update.delta if _RESIDUAL not in state else update.delta + state[_RESIDUAL]
        chance = seeds.stream(self.seed, task.round, self.device, "codec")
        described, parts, seen = _encoded((_DELTA, delta), update.extra, self.codec, self.model.layout, chance)
        if not self.codec.lossless:
            kept = {**kept, _RESIDUAL: delta - seen}
        answer = Answer(
            job=self.job,
            run_id=model_ref.run_id,
            round=task.round,
            device=self.device,
            model=model_ref.model,
            weight=update.weight,
            steps=update.steps,
            seconds_per_step=pace,
            tensors=described,
        )
        return Done(frame(answer, parts, compress=self.compress), kept, pace, update.steps)

    def _train(self, task: Task, state: State, site: Site) -> tuple[Update, State]:
        """The device half; learning that leaves the finite numbers, or all measure, ends with its likely cause."""
        try:
            with quiet():
                update, kept = self.algorithm.train(task, state, site)
            check_length(update.delta, task.params)
        except Diverged as error:
            lr = rate(self.algorithm)
            what = f"device '{self.device}', round {task.round}, {error}"
            cause, told = likely_cause(self.data, lr), likely_cause(self.data, lr, quote=False)
            raise Diverged(f"{what}; {cause}", told=f"{what}; {told}") from None
        return update, kept


def _paced(site: Site, pace: float) -> Site:
    """The site, on a clock that goes on by `pace` seconds with every step and stands still between them."""
    steps = 0

    def watch(done: int) -> None:
        nonlocal steps
        steps += 1
        site.watch(done)

    return replace(site, watch=watch, timer=lambda: steps * pace)


def unpack_answer(answer: Answer, body: memoryview, size: int, codec: Codec | None = None) -> Update:
    """The update behind an answer, if its numbers can be used at all; `codec` is the run's, which may not be ours."""
    arrays = tensors.decode(answer.tensors, body, {_DELTA: size}, codec)
    for name in arrays:
        if name != _DELTA and not name.startswith(_EXTRA):
            raise WireError("update.unknown_tensor", f"'{name}' is no part of an answer")
    update = Update(_vector(arrays, _DELTA, size), answer.weight, answer.steps, _extra(arrays))
    for name, array in (("delta", update.delta), *update.extra.items()):
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise WireError("update.not_finite", f"'{name}' has numbers that are not finite")
    return update


def _encoded(
    named: tuple[str, Vector],
    extra: State,
    codec: Codec,
    layout: Layout | None,
    rng: np.random.Generator | None = None,
) -> tuple[tuple[Tensor, ...], tuple[bytes | memoryview, ...], Vector]:
    """A vector of the model and what an algorithm adds to it, described and as bytes; how the vector will be seen."""
    name, v = named
    first, payload, seen = tensors.encode({name: v}, codec, layout, rng)
    others, payloads, _ = tensors.encode(_prefixed(extra), beside(codec))
    return (*first, *others), (*payload, *payloads), seen[name]


def _prefixed(extra: State) -> State:
    return {_EXTRA + key: value for key, value in extra.items()}


def _extra(arrays: State) -> State:
    return {key.removeprefix(_EXTRA): value for key, value in arrays.items() if key.startswith(_EXTRA)}


def _vector(arrays: State, name: str, size: int) -> Vector:
    v = arrays.get(name)
    if v is None or v.shape != (size,) or v.dtype != np.float32:
        seen = "nothing" if v is None else f"{v.dtype} of shape {v.shape}"
        raise WireError("wire.shape", f"'{name}' must be float32 of shape ({size},), got {seen}")
    return v
