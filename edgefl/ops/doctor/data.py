"""The data of a device: whether they can be read, what was seen in them, how many there are, how large they are."""

from collections.abc import Iterator

import numpy as np

from edgefl.base.errors import ConfigError
from edgefl.job.config.agent_file import LocalData
from edgefl.job.run.local_data import held_by, local_source
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.training.divergence import largest, unscaled
from edgefl.ops.doctor.finding import Finding, ok, warning, wrong

UNEVEN = 20  # times as many samples of one class as of another: the rare one will hardly be learnt
MOST_CLASSES = 1 << 16  # whose samples are counted; whole numbers beyond are no classes
SHOWN = 10  # classes whose samples are counted in the text


def data(settings: LocalData) -> Iterator[Finding]:
    """What an agent with this section would train on."""
    try:
        source = local_source(settings)
        held = held_by(settings, source)
    except ConfigError as error:
        text, _, remedy = str(error).rpartition("; ")
        yield wrong("data", text or remedy, remedy if text else "correct data.source")
        return
    yield ok("data", f"{settings.source}: {len(held)} samples of shape {list(held.shape)}, {labels(held)}")
    for note in source.notes:
        yield ok("read", note)
    if settings.partition is None and 0 < held.classes <= MOST_CLASSES:
        yield from _classes(held, source.test)
    if top := unscaled(held):
        text = f"features go up to {top:.6g}"
        yield warning(
            "scale", text, "set task.normalise = 'fleet' in the run file, or scale them to about -1 to 1 on all devices"
        )
    else:
        yield ok("scale", f"the largest feature is {largest(held):.6g}")


def _classes(held: Dataset, held_back: Dataset) -> Iterator[Finding]:
    """A class that this device cannot learn, though it has samples of it, or hardly any sample of."""
    names = held.class_names or tuple(str(i) for i in range(held.classes))
    counts, others = held.counts(), held_back.counts()
    if lost := [name for name, here, there in zip(names, counts, others, strict=True) if there and not here]:
        text = f"all samples of '{lost[0]}' are held back, none is trained on"
        yield warning("classes", text, "record more of it, at several times")
    known = counts[counts > 0]
    if len(known) > 1 and known.max() > UNEVEN * known.min():
        rare = names[int(np.argmin(np.where(counts > 0, counts, np.iinfo(np.int64).max)))]
        text = f"'{rare}' has {known.min()} samples, the most frequent class {known.max()}"
        yield warning("classes", text, "set task.class_weights = 'balanced' in the run file, or record more of it")


def labels(held: Dataset) -> str:
    """The labels in words: how many samples of each class, or the range of the targets."""
    if not held.classes:
        named = f" ({', '.join(held.target_names)})" if held.target_names and held.targets > 1 else ""
        count = f"{held.targets} " if held.targets > 1 else ""
        return f"{count}real targets{named} from {held.y.min():.6g} to {held.y.max():.6g}"
    if held.classes > MOST_CLASSES:
        return f"labels from {held.y.min()} to {held.y.max()}"
    names = held.class_names or tuple(str(i) for i in range(held.classes))
    counts = [f"{name}: {count}" for name, count in zip(names, held.counts().tolist(), strict=True) if count]
    rest = ", ..." if len(counts) > SHOWN else ""
    lacking = held.classes - len(counts)
    none = f"; {lacking} more without a sample" if lacking else ""
    return f"{held.classes} classes ({', '.join(counts[:SHOWN])}{rest}{none})"
