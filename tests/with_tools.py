"""The environment of a child process that finds `tools`, which is not installed, whatever its current folder is."""

import os
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]


def with_tools(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    given = dict(os.environ if environment is None else environment)
    places = [str(ROOT), *filter(None, [given.get("PYTHONPATH")])]
    return given | {"PYTHONPATH": os.pathsep.join(places)}
