"""Flashback: distillation on both sides, teachers trusted class by class for the labels they saw (Aljahdali, 2024).

`nu` are the student's label counts, `mu` a teacher's, `pi` those the global model has earned so far. A teacher's say
on a class is its share of all counts of that class.
"""

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass as record
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from edgefl.base.errors import ConfigError
from edgefl.base.vector import Array, State, Vector
from edgefl.learn.aggregation import Mean
from edgefl.learn.algorithms.fedntd import not_true
from edgefl.learn.contract import STRICT, Draft, Site, Stage, Task, Traits, Update
from edgefl.learn.data.description import summed_rows
from edgefl.learn.evaluation.metrics import logits
from edgefl.learn.losses import log_softmax
from edgefl.learn.training.local import LocalTraining, gradient, loss_gradient
from edgefl.learn.training.public import PublicTraining, classified, split

Counts: TypeAlias = Literal["raw", "relative"]  # how many labels of a class, or which share of all of them


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Flashback(LocalTraining):
    """Distillation on the devices from the global model, and at the coordinator from all models of the round."""

    name: Literal["flashback"] = "flashback"
    plain_steps: ClassVar[bool] = False
    lr: Annotated[float, Field(gt=0)] = 0.01
    batch: Annotated[int, Field(ge=1)] = 50
    epochs: Annotated[float, Field(gt=0)] = 5
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: Annotated[float, Field(ge=0)] = 1e-5
    gamma: Annotated[float, Field(ge=0)] = 0.1  # the share of its counts that a device adds to pi each time
    temperature: Annotated[float, Field(gt=0)] = 3.0
    kd_t2: bool = True
    counts: Counts = "raw"
    sides: Literal["both", "device", "server"] = "both"
    device_loss: Literal["dkd", "ntd"] = "dkd"  # the paper's ablation: not-true distillation on the device
    max_epochs: Annotated[int, Field(ge=0)] = 20
    patience: Annotated[int, Field(ge=1)] = 3
    patience_on: Literal["loss", "accuracy"] = "loss"
    keep_start: bool = True

    traits = Traits(one_model="devices receive what all of them together have seen of each class")

    def plan(self, round: int, params: Vector, server: Mapping[str, State]) -> State | None:  # noqa: ARG002
        if server and "distill" not in server:
            raise ConfigError("algorithm 'flashback' needs the stage 'distill' in [[aggregation]]: it keeps the counts")
        pi = server.get("distill", {}).get("pi")
        return {} if pi is None or self.sides == "server" else {"pi": pi}  # float64, which no codec rounds

    def train(self, task: Task, state: State, site: Site) -> tuple[Update, State]:
        classes = classified(site, "algorithm 'flashback'")
        sgd, counts = self.sgd(site), site.data.counts()
        rows = summed_rows(len(site.data), site.left_out)
        pi = task.extra.get("pi", np.zeros(classes))
        alpha_s, alphas = class_weights(knowledge(counts, self.counts), pi[None])

        def step(w: Vector, x: Array, y: Array) -> Vector:
            if not pi.any():  # the global model is not trusted yet: the loss is the plain one
                return sgd(w, gradient(site, w, x, y))
            z, pullback = site.model.vjp(w, x)
            teacher = site.model.logits(task.params, x)
            if self.device_loss == "ntd":
                return sgd(w, pullback(loss_gradient(site, z, y) + not_true(z, y, teacher, 1.0)[1]))
            _, dz = distillation(z, y, teacher[None], alpha_s, alphas, self.temperature, kd_t2=self.kd_t2)
            return sgd(w, pullback(dz))

        walked = self.walk(task, site, step)
        told = {} if "told" in state else {"counts": site.data.take(rows).counts()}
        return self.update(task, site, walked, told), {"told": np.array(True)}

    def stages(self) -> tuple[Stage, ...]:
        distill = Distill(
            gamma=self.gamma,
            temperature=self.temperature,
            kd_t2=self.kd_t2,
            counts=self.counts,
            lr=self.lr,
            batch=self.batch,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            max_epochs=0 if self.sides == "device" else self.max_epochs,
            patience=self.patience,
            patience_on=self.patience_on,
            keep_start=self.keep_start,
        )
        return (Mean(), distill)


def knowledge(counts: Array, kind: Counts) -> Array:
    """What a model trained on these labels is taken to know: how many of each class it saw, or which share of all."""
    if kind == "raw":
        return counts
    total = counts.sum(axis=-1, keepdims=True)
    return np.asarray(np.divide(counts, total, out=np.zeros(counts.shape), where=total > 0))


def class_weights(student: Array, teachers: Array) -> tuple[Array, Array]:
    """Each model's share of the label counts, per class: (classes,) and (teachers, classes), together one.

    A class that no model has seen is left to the student.
    """
    nu, mu = np.asarray(student, np.float64), np.asarray(teachers, np.float64)
    total = nu + mu.sum(axis=0)
    seen = total > 0
    alphas = np.divide(mu, total, out=np.zeros_like(mu), where=seen)
    return np.divide(nu, total, out=np.ones_like(nu), where=seen), alphas


@record(frozen=True, slots=True)
class Lesson:
    """What all teachers together say about some samples: all that distillation needs of them, however many they are."""

    target: Array  # sum over the teachers of alpha * p, one row per sample
    entropy: Array  # sum over the teachers and classes of alpha * p * log p, one number per sample

    def take(self, rows: Array) -> "Lesson":
        return Lesson(self.target[rows], self.entropy[rows])


def lesson(teacher_logits: Iterable[Array], alphas: Array, temperature: float) -> Lesson:
    """Return the distillation loss; logits of the teachers may come one by one, so that memory holds one at a time."""
    target = entropy = None
    for z, alpha in zip(teacher_logits, alphas, strict=True):
        logp = log_softmax(z / z.dtype.type(temperature))
        part = alpha.astype(z.dtype) * np.exp(logp)
        target = part if target is None else target + part
        own_entropy = (part * logp).sum(axis=1)
        entropy = own_entropy if entropy is None else entropy + own_entropy
    if target is None or entropy is None:
        raise ValueError("distillation needs at least one teacher")
    return Lesson(target, entropy)


def distillation(  # noqa: PLR0917 - the order of the paper's symbols
    z: Array,
    y: Array,
    teacher_logits: Array,
    alpha_s: Array,
    alphas: Array,
    temperature: float = 3.0,
    *,
    kd_t2: bool = True,
) -> tuple[float, Array]:
    """The dKD loss of a student with logits `z` and its gradient; `teacher_logits` are (teachers, samples, classes)."""
    return follow(z, y, lesson(teacher_logits, alphas, temperature), alpha_s, temperature, kd_t2=kd_t2)


def follow(
    z: Array, y: Array, taught: Lesson, alpha_s: Array, temperature: float = 3.0, *, kd_t2: bool = True
) -> tuple[float, Array]:
    """The same for a lesson prepared before.

    The weighted sum is no divergence: it may be negative, and its minimum is at q proportional to alpha * p.
    """
    n, real = len(z), z.dtype.type
    scale = temperature**2 if kd_t2 else 1.0
    logq = log_softmax(z / real(temperature))
    mass = taught.target.sum(axis=1, keepdims=True)
    kd = float((taught.entropy - (taught.target * logq).sum(axis=1)).mean())
    dz = real(scale / temperature) * (mass * np.exp(logq) - taught.target)

    own, rows, logp = alpha_s.astype(z.dtype)[y], np.arange(n), log_softmax(z)
    labels = np.exp(logp)
    labels[rows, y] -= 1
    loss = -float((own * logp[rows, y]).mean()) + scale * kd
    return loss, np.asarray((own[:, None] * labels + dz) / real(n))


def trust(pi: Array, counts: Any, seen: Any, sampled: Iterable[Any], gamma: float) -> tuple[Array, Any]:
    """What the global model has earned after a round, and how often each device took part.

    `counts` and `seen` are looked up by the members of `sampled`: arrays by row, mappings by name (hence Any). A
    device adds gamma of its counts each time, until it has added them all.
    """
    pi, seen = np.array(pi, np.float64), copy(seen)
    for k in sampled:
        seen[k] += 1  # first, so that gamma = 1 counts a device once
        if gamma * seen[k] <= 1 + 1e-9:
            pi += gamma * np.asarray(counts[k], np.float64)
    return pi, seen


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Distill(PublicTraining):
    """Distils the models of the round into the draft on public data, then counts what the global model has earned.

    With max_epochs = 0 it only counts, and needs no public data.
    """

    name: Literal["distill"] = "distill"
    gamma: Annotated[float, Field(ge=0)] = 0.1
    temperature: Annotated[float, Field(gt=0)] = 3.0
    kd_t2: bool = True
    counts: Counts = "raw"

    traits = Traits(
        individual=True,
        one_model="it adds each update to the current model to recover the device's own model",
        believes="the label counts that devices send",
    )

    def apply(self, draft: Draft, state: State, site: Site) -> tuple[Draft, State]:
        classes = classified(site, "aggregation 'distill'")
        if not draft.updates:
            return draft, state
        book = register(state, draft, classes)
        epochs = 0
        if self.max_epochs:
            draft, epochs = self.distil(draft, book, site)
        at = [int(np.flatnonzero(book["devices"] == device)[0]) for device in draft.updates]
        pi, seen = trust(book["pi"], knowledge(book["counts"], self.counts), book["seen"], at, self.gamma)
        return draft, {**book, "pi": pi, "seen": seen, "epochs": np.array(epochs)}

    def distil(self, draft: Draft, book: State, site: Site) -> tuple[Draft, int]:
        """The draft after distillation, and the number of epochs of the model that was kept."""
        public = split(site, self.name)
        mu = dict(zip(book["devices"].tolist(), knowledge(book["counts"], self.counts), strict=True))
        moves = [(np.zeros_like(draft.params), book["pi"]), *((u.delta, mu[k]) for k, u in draft.updates.items())]
        moves = [(delta, counts) for delta, counts in moves if counts.any()]
        if not moves:  # no model has seen a label, so there is nothing to distill
            return draft, 0
        alpha_s, alphas = class_weights(book["pi"], np.stack([counts for _, counts in moves]))
        spoken = (logits(site.model, draft.params + delta, public.training.x) for delta, _ in moves)
        taught, sgd = lesson(spoken, alphas, self.temperature), self.sgd(site)

        def step(w: Vector, rows: Array) -> Vector:
            z, pullback = site.model.vjp(w, public.training.x[rows])
            y = public.training.y[rows]
            return sgd(w, pullback(follow(z, y, taught.take(rows), alpha_s, self.temperature, kd_t2=self.kd_t2)[1]))

        polished = self.polish(draft.params + draft.step, public, site, step)
        return replace(draft, step=polished.params - draft.params), polished.check


def register(state: State, draft: Draft, classes: int) -> State:
    """The stage's book with every device of this round in it: who, its label counts, and how often it took part.

    A device tells its counts once, perhaps in an answer that came too late to be merged. One that has told none that
    can be used is worth nothing as a teacher, and `uncounted` says how many of those this round had.
    """
    known = dict(zip(state["devices"].tolist(), state["counts"], strict=True)) if state else {}
    often = dict(zip(state["devices"].tolist(), state["seen"].tolist(), strict=True)) if state else {}
    for device, update in [*draft.late.items(), *draft.updates.items()]:
        told = update.extra.get("counts")
        if told is not None and told.shape == (classes,) and told.dtype.kind in "iu" and (told >= 0).all():
            known[device] = told.astype(np.int64)
    if not known:
        raise ConfigError("aggregation 'distill': no device sent its label counts; use algorithm.name = 'flashback'")
    known = {**dict.fromkeys(draft.updates, np.zeros(classes, np.int64)), **known}
    names = sorted(known)
    return {
        "devices": np.array(names),
        "counts": np.stack([known[name] for name in names]),
        "seen": np.array([often.get(name, 0) for name in names], np.int64),
        "pi": state.get("pi", np.zeros(classes)),
        "uncounted": np.array(sum(not known[device].any() for device in draft.updates)),
    }
