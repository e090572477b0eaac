"""The samples that an agent file names, read from wherever they are; a box is given them, and cannot read any."""

import logging
from functools import partial
from pathlib import Path

from device_agent.samples import Samples
from edgefl.config.agent_file import LocalData
from edgefl.data import files
from edgefl.run.local_data import local_samples


def samples_of(settings: LocalData, root: Path | None = None) -> Samples:
    """The samples that an agent file names."""
    source, tells, read = settings.source, settings.statistics, partial(local_samples, settings, root)
    if settings.partition is not None or ":" not in source:
        return Samples(*read(), describes=tells)
    if not files.is_file(source):  # called before every task: not worth a line each time
        return Samples(*read(), partial(read, log_level=logging.DEBUG), describes=tells)
    seen = files.version(source)
    return Samples(*read(), read, lambda: files.version(source), seen, describes=tells)
