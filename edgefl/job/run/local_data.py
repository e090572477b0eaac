"""A device's own samples, as its agent file names them."""

import logging
from pathlib import Path

from edgefl.job.config.agent_file import LocalData
from edgefl.learn.data.catalog import load
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.data.labels import understood_source
from edgefl.learn.data.source import Source
from edgefl.learn.data.split import part

log = logging.getLogger(__name__)


def local_source(settings: LocalData, root: Path | None = None) -> Source:
    """The source that a device's agent file names, its classes numbered as the file says."""
    loaded = load(settings.source, root, settings)
    return understood_source(loaded, settings.classes, f"data.source = '{settings.source}'")


def local_data(settings: LocalData, root: Path | None = None) -> Dataset:
    """The device's samples: all of the source's train part, or one part of it in a trial."""
    return local_samples(settings, root)[0]


def local_samples(
    settings: LocalData, root: Path | None = None, *, log_level: int = logging.INFO
) -> tuple[Dataset, Dataset | None]:
    """The device's samples, and those that it holds back; in a trial the test part is not its own."""
    source = local_source(settings, root)
    if settings.partition is None:
        sizes = len(source.train), len(source.test)
        log.log(log_level, "data source=%s samples=%d held_back=%d", settings.source, *sizes)
        for note in source.notes:
            log.log(log_level, "data %s", note)
    return held_by(settings, source), source.test if settings.partition is None else None


def held_by(settings: LocalData, source: Source) -> Dataset:
    """What of the source the device trains on."""
    if settings.partition is None:
        return source.train
    return part(source, settings.partition, settings.public, settings.seed, settings.part)
