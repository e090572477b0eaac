"""Logging: one line per thing that happened, on stderr."""

import logging
import sys

from edgefl.errors import ConfigError

LEVELS = ("debug", "info", "warning", "error")


def set_up(level: str) -> None:
    """Log at this level from here on."""
    if level not in LEVELS:
        raise ConfigError(f"--log {level}: choose one of {', '.join(LEVELS)}")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
