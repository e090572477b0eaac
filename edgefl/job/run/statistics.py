"""Apply statistics over the fleet's data: normalise features inside the model, and weigh classes by their counts.

Every device sends its statistics once, before the first round (`edgefl/base/schedule.py`). It gets the merged ones
with each model, in the plan's additions, under names that no algorithm uses. So the loop, an emulated fleet and real
devices apply the same numbers, and a restart finds them in the run's state.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgefl.base.errors import ConfigError
from edgefl.base.vector import Array, State
from edgefl.learn.contract import Update
from edgefl.learn.data import description
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.losses import Loss, weighted
from edgefl.learn.models.base import Model
from edgefl.learn.models.normalised import Normalised

if TYPE_CHECKING:  # devices work with this module as well, and never read a run file
    from edgefl.job.config.schema import Learning

NAME = "fleet"  # of the merged statistics in the run's state
_TOLD = "fleet/"  # prefix of the arrays that devices get with a plan
SHOWN = 64  # features, or classes, whose numbers are in a fact


def asked(task: "Learning") -> State:
    """Return the request for statistics: whether devices send those of features, of classes, or both."""
    return {"features": _flag(task.normalise == "fleet"), "classes": _flag(task.class_weights == "balanced")}


def answer(data: Dataset, told: State, *, silent: bool = False, described: State | None = None) -> State:
    """Return the statistics that a device sends; `described` are those it sent before, which are sent again."""
    features, classes = (bool(told.get(key, _flag(False)).any()) for key in ("features", "classes"))
    classes = classes and bool(data.classes)
    if described and not silent:
        return description.part(described, features=features, classes=classes)
    return description.describe(data, features=features, classes=classes, silent=silent)


def check(task: "Learning", told: Mapping[str, Array], sample: tuple[int, ...], classes: int) -> None:
    """Refuse statistics that no device of this run can have sent."""
    channels = sample[0] if task.normalise == "fleet" else 0
    description.check(told, channels, classes if task.class_weights == "balanced" else 0)


def merged(answers: Mapping[str, Update], sample: tuple[int, ...], *, cap: float, majority: bool) -> State:
    """Merge the statistics of all devices; no device counts for more than `cap` times the median device."""
    values = int(np.prod(sample[1:], dtype=np.int64))
    return description.merged({name: one.extra for name, one in answers.items()}, values, cap=cap, majority=majority)


def told(states: Mapping[str, State], weights: Array | None) -> State:
    """Return what every device gets with a plan: mean and scale of the features, and the weights of classes."""
    known, news = states.get(NAME, {}), State()
    if known.get("mean", np.zeros(0)).size:
        news |= {_TOLD + key: known[key] for key in ("mean", "scale")}
    if weights is None and known.get("classes", np.zeros(0)).size:
        weights = description.balanced(known["classes"])
    return news if weights is None else news | {_TOLD + "weights": weights.astype(np.float32)}


def applied(extra: State, model: Model, loss: Loss) -> tuple[State, Model, Loss]:
    """Return a plan's other additions, and model and loss with the statistics applied."""
    news = {key.removeprefix(_TOLD): value for key, value in extra.items() if key.startswith(_TOLD)}
    if not news:
        return extra, model, loss
    if {"mean", "scale"} <= news.keys():
        model = Normalised(model, news["mean"], news["scale"])
    if "weights" in news:
        loss = weighted(loss, news["weights"])
    return {key: value for key, value in extra.items() if not key.startswith(_TOLD)}, model, loss


def raw_unit_constants(extra: State) -> State:
    """Return mean and scale of the features from a plan's additions; empty if the model does not normalise."""
    known = {key: extra[_TOLD + key] for key in ("mean", "scale") if _TOLD + key in extra}
    return known if len(known) == 2 else {}


def constants(states: Mapping[str, State]) -> dict[str, list[float]] | None:
    """Return mean and scale of the features as a checkpoint stores them, if the model takes raw units."""
    known = states.get(NAME, {})
    if not known.get("mean", np.zeros(0)).size:
        return None
    return {key: [float(value) for value in known[key]] for key in ("mean", "scale")}


def read(known: Mapping[str, Sequence[float]] | None) -> State:
    """Return mean and scale from a checkpoint as arrays of a run's state."""
    return {key: np.array(values, np.float32) for key, values in (known or {}).items()}


def raw_units(model: Model, known: State) -> Model:
    """Wrap the model so that it takes raw units, if there are such constants."""
    return Normalised(model, known["mean"], known["scale"]) if known else model


def class_weights(task: "Learning", classes: int, names: tuple[str, ...] | None) -> Array | None:
    """Return the weights of classes that the run file sets by name or number; all others weigh one."""
    if not isinstance(task.class_weights, dict):
        return None
    known = {name: i for i, name in enumerate(names or ())} | {str(i): i for i in range(classes)}
    weights = np.ones(classes, np.float32)
    for name, weight in task.class_weights.items():
        if name not in known:
            raise ConfigError(
                f"task.class_weights names '{name}', which is no class of the run; it has {', '.join(list(known)[:20])}"
            )
        weights[known[name]] = weight
    return weights


def fact(state: State, silent: int, weights: Array | None) -> dict[str, Any]:
    """Return the merged statistics as the fields of the fact `Described`."""
    mean, scale, counts = (state.get(key, np.zeros(0)) for key in ("mean", "scale", "classes"))
    return {
        "devices": int(state["devices"][0]),
        "samples": int(state["samples"][0]),
        "silent": silent,
        "bounded": int(state.get("bounded", np.zeros(1, np.int64))[0]),  # earlier versions did not count them
        "features": len(mean),
        "mean": _numbers(mean),
        "deviation": _numbers(1 / scale),
        "class_counts": _numbers(counts),
        "class_weights": None if weights is None else _numbers(weights),
    }


def _numbers(values: Array) -> tuple[float, ...] | None:
    return tuple(float(f"{value:.6g}") for value in values[:SHOWN].tolist()) if len(values) else None


def _flag(value: bool) -> Array:
    return np.array([value], np.uint8)
