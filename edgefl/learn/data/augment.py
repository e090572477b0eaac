"""Augmentation on devices: samples are changed at random before every round of training, in numpy.

    flip           images (channels, height, width): mirrored left to right, every second one
    crop=2         images: moved by up to this number of pixels each way, zeros coming in
    shift=4        series (channels, time): moved by up to this number of steps, the first or last one repeated
    noise=0.1      normal noise, in standard deviations of its channel over the device's data
    scale=0.1      each channel of a sample times a factor from a normal distribution around one
    mine.change:twice    a function of your own: (x, rng) -> x of the same shape

Labels that are places of a sample (a segmentation's, an autoencoder's) move with it; a pixel that comes in is not
known. A function of your own changes samples alone.

They are applied one after another, to a copy. The stream is named by seed, round and device, so every driver trains on
the same samples; within a round all passes see the same ones. What is held back to evaluate on is never changed.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from math import prod
from typing import TypeAlias

import numpy as np

from edgefl.base.errors import ConfigError, nearest
from edgefl.base.vector import Array
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.registry import elsewhere
from edgefl.learn.tasks.fields import in_words
from edgefl.learn.tasks.form import Form
from edgefl.system import user_code

Change: TypeAlias = Callable[[Array, np.random.Generator], Array]


def augmented(data: Dataset, words: Sequence[str], rng: np.random.Generator) -> Dataset:
    """The data with fresh changes."""
    x, y = data.x, data.y
    if words and data.form.inputs:
        raise ConfigError(f"task.augment: '{words[0]}' changes samples of one array, and these have several inputs")
    for word in words:
        if x.dtype.kind != "f":
            raise ConfigError(f"task.augment: '{word}' changes real numbers, and samples are of type {x.dtype}")
        geometric = word.partition("=")[0] in GEOMETRIC
        if geometric and y.ndim > 2:
            raise ConfigError(f"task.augment: '{word}' would move samples away from their labels, which have a shape")
        if geometric and data.form.kind:
            x, y = _moved(word, x, y, data.form, rng)
            continue
        changed = np.asarray(_change(word)(x, rng), x.dtype)
        if changed.shape != x.shape:
            raise ConfigError(f"task.augment: '{word}' made {list(changed.shape)} of samples of {list(x.shape)}")
        x = changed
    return data if x is data.x else replace(data, x=x, y=y)


def _moved(word: str, x: Array, y: Array, form: Form, rng: np.random.Generator) -> tuple[Array, Array]:
    """Samples that are moved, and with them the labels that are places of them, as if these were further channels."""
    own, places = x.shape[1], x.shape[2:]
    channels = {"segmentation": 1, "autoencoder": own}.get(form.kind, 0)  # of labels that move along
    width, raised = channels * prod(places), int(form.kind == "segmentation")
    shaped = [field for field in form.labels if field.learnt and len(field.shape) > 1 - raised]
    if places and shaped and shaped[0].size != width:
        labels = in_words((shaped[0],))
        raise ConfigError(
            f"task.augment: '{word}' would move samples {list(x.shape[1:])} away from their labels {labels}"
        )
    if not places:
        return _change(word)(x, rng), y  # which is refused there
    along = y[:, :width].reshape(len(y), channels, *places) + raised  # labels are raised, so that what comes in is -1
    both = np.asarray(_change(word)(np.concatenate([x, along], axis=1), rng), x.dtype)
    rows = both[:, own:].reshape(len(y), width) - raised
    return both[:, :own], np.concatenate([rows, y[:, width:]], axis=1)


def check(words: Sequence[str], allowed: Collection[str] | None = None) -> None:
    """Nothing, if all of these are known; otherwise a ConfigError. With `allowed`, no other code is imported."""
    for word in words:
        if ":" in word and allowed is not None and word not in allowed:
            raise ConfigError(
                f"task.augment = '{word}': this device does not run code because a message names it: if it is meant,"
                " add it to compute.factories in the agent file",
                free_of_data=True,
            )
        _change(word)


def _change(word: str) -> Change:
    if ":" in word:
        function = elsewhere(word, "task.augment")
        if not user_code.is_function(function):
            raise ConfigError(f"task.augment = '{word}' is no function of samples and a random generator")
        change: Change = function
        return change
    name, _, size = word.partition("=")
    if name not in CHANGES:
        raise ConfigError(f"task.augment = '{word}' is not known; {nearest(name, CHANGES)}", free_of_data=True)
    if not size:
        return CHANGES[name]()
    try:
        return CHANGES[name](float(size))
    except (ValueError, TypeError):
        raise ConfigError(f"task.augment = '{word}': write it as '{EXAMPLES[name]}'") from None


def flip() -> Change:
    """Every second image, at random, is mirrored."""

    def change(x: Array, rng: np.random.Generator) -> Array:
        _shaped(x, 3, "flip")
        mirrored = rng.random(len(x)) < 0.5
        return np.where(mirrored[:, None, None, None], x[..., ::-1], x)

    return change


def crop(most: float = 2) -> Change:
    """Images are moved by whole pixels."""
    size = _whole(most)

    def change(x: Array, rng: np.random.Generator) -> Array:
        _shaped(x, 3, "crop")
        wide = np.pad(x, ((0, 0), (0, 0), (size, size), (size, size)))
        down, right = rng.integers(0, 2 * size + 1, (2, len(x)))
        rows = down[:, None] + np.arange(x.shape[2])
        columns = right[:, None] + np.arange(x.shape[3])
        each = np.arange(len(x))[:, None, None]
        moved = wide.transpose(0, 2, 3, 1)[each, rows[:, :, None], columns[:, None, :]]
        return np.ascontiguousarray(moved.transpose(0, 3, 1, 2))

    return change


def shift(most: float = 4) -> Change:
    """Series are moved in time."""
    size = _whole(most)

    def change(x: Array, rng: np.random.Generator) -> Array:
        _shaped(x, 2, "shift")
        by = rng.integers(-size, size + 1, len(x))
        at = np.clip(np.arange(x.shape[2]) - by[:, None], 0, x.shape[2] - 1)
        return np.take_along_axis(x, at[:, None, :], axis=2)

    return change


def noise(size: float = 0.1) -> Change:
    """Normal noise in units of each channel's own spread."""

    def change(x: Array, rng: np.random.Generator) -> Array:
        others = (0, *range(2, x.ndim))
        spread = x.std(axis=others, keepdims=True, dtype=np.float64)
        return np.asarray(x + size * spread * rng.standard_normal(x.shape))

    return change


def scale(size: float = 0.1) -> Change:
    """Channels are made larger or smaller."""

    def change(x: Array, rng: np.random.Generator) -> Array:
        factors = 1 + size * rng.standard_normal(x.shape[:2])
        return np.asarray(x * factors.reshape(*factors.shape, *(1,) * (x.ndim - 2)))

    return change


CHANGES: dict[str, Callable[..., Change]] = {"flip": flip, "crop": crop, "shift": shift, "noise": noise, "scale": scale}
EXAMPLES = {"flip": "flip", "crop": "crop=2", "shift": "shift=4", "noise": "noise=0.1", "scale": "scale=0.1"}
GEOMETRIC = {"flip", "crop", "shift"}


def _whole(size: float) -> int:
    if size < 1 or size != int(size):
        raise ValueError(size)
    return int(size)


def _shaped(x: Array, axes: int, word: str) -> None:
    what = "images (channels, height, width)" if axes == 3 else "series (channels, time)"
    if x.ndim != axes + 1:
        raise ConfigError(f"task.augment: '{word}' is for {what}, and samples have shape {list(x.shape[1:])}")
