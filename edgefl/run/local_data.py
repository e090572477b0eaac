"""A device's own samples, as its agent file names them."""

import logging
from pathlib import Path

from edgefl.config.schema import LocalData
from edgefl.data.catalog import load
from edgefl.data.dataset import Dataset
from edgefl.data.labels import understood_source
from edgefl.data.source import Source
from edgefl.data.split import part

log = logging.getLogger(__name__)


def local_source(settings: LocalData, root: Path | None = None) -> Source:
    """The source that a device's agent file names, its classes numbered as the file says."""
    return understood_source(load(settings.source, root), settings.classes, f"data.source = '{settings.source}'")


def local_data(settings: LocalData, root: Path | None = None, *, log_level: int = logging.INFO) -> Dataset:
    """The device's samples: all of the source's train part, or one part of it in a trial."""
    source = local_source(settings, root)
    if settings.partition is None:
        sizes = len(source.train), len(source.test)
        log.log(log_level, "data source=%s samples=%d held_back=%d", settings.source, *sizes)
        return source.train
    return part(source, settings.partition, settings.public, settings.seed, settings.part)
