"""The samples that an agent file names, read from wherever they are; a box is given them, and cannot read any."""

import logging
from functools import partial
from itertools import chain, repeat
from pathlib import Path

from device_agent.shell.samples import Samples
from edgefl.job.config.agent_file import LocalData
from edgefl.job.run.local_data import local_samples
from edgefl.learn.data import catalog, files


def samples_of(settings: LocalData, root: Path | None = None) -> Samples:
    """Return the samples that an agent file names; raise `ConfigError` if it names no source that there is.

    A source that cannot be read now may be readable later: that is a state of the samples, and no error.
    """
    source, tells, read = settings.source, settings.statistics, partial(local_samples, settings, root)
    catalog.check_name(source)
    if settings.partition is not None or ":" not in source:
        return Samples.opened(read, describes=tells, changes=False)
    if not files.is_file(source):
        levels = chain([logging.INFO], repeat(logging.DEBUG))  # called before every task: not worth a line each time
        return Samples.opened(lambda: read(log_level=next(levels)), describes=tells)
    return Samples.opened(read, partial(files.version, source), describes=tells)
