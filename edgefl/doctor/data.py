"""The data of a device: whether they can be read, how many there are, of what kind and how large."""

from collections.abc import Iterator

from edgefl.config.schema import LocalData
from edgefl.data.dataset import Dataset
from edgefl.doctor.finding import Finding, ok, warning, wrong
from edgefl.errors import ConfigError
from edgefl.run.local_data import local_data
from edgefl.training.divergence import largest, unscaled

SHOWN = 10  # classes whose samples are counted in the text


def data(settings: LocalData) -> Iterator[Finding]:
    """What an agent with this section would train on."""
    try:
        held = local_data(settings)
    except ConfigError as error:
        text, _, remedy = str(error).rpartition("; ")
        yield wrong("data", text or remedy, remedy if text else "correct data.source")
        return
    yield ok("data", f"{settings.source}: {len(held)} samples of shape {list(held.shape)}, {labels(held)}")
    if top := unscaled(held):
        text = f"features go up to {top:.6g}"
        yield warning(
            "scale", text, "scale them to about -1 to 1, on all devices alike, or learning will probably fail"
        )
    else:
        yield ok("scale", f"the largest feature is {largest(held):.6g}")


def labels(held: Dataset) -> str:
    """The labels in words: how many samples of each class, or the range of the targets."""
    if not held.classes:
        return f"real targets from {held.y.min():.6g} to {held.y.max():.6g}"
    names = held.class_names or tuple(str(i) for i in range(held.classes))
    counts = [f"{name}: {count}" for name, count in zip(names, held.counts().tolist(), strict=True) if count]
    rest = ", ..." if len(counts) > SHOWN else ""
    lacking = held.classes - len(counts)
    none = f"; {lacking} more without a sample" if lacking else ""
    return f"{held.classes} classes ({', '.join(counts[:SHOWN])}{rest}{none})"
