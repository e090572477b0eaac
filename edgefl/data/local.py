"""A device's own samples, as its agent file names them."""

from dataclasses import replace
from pathlib import Path

from edgefl.config import LocalData
from edgefl.data.dataset import Dataset
from edgefl.data.holdings import part
from edgefl.data.labels import understood
from edgefl.data.sources import load


def local_data(wanted: LocalData, root: Path | None = None) -> Dataset:
    """The device's samples: all of the source's train part, or one part of it in a trial."""
    source = load(wanted.source, root)
    if wanted.classes is not None:
        train = understood(source.train, wanted.classes, f"data.source = '{wanted.source}'")
        source = replace(source, train=train)
    if wanted.partition is None:
        return source.train
    return part(source, wanted.partition, wanted.public, wanted.seed, wanted.part)
