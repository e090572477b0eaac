"""Where and with what something was measured, for pages that are kept."""

import platform
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

from edgefl.ops.bench.report import machine


def measured_on(place: Path, packages: Iterable[str], others: Mapping[str, str]) -> dict[str, Any]:
    """The machine, the date, versions, and the file system of the folder that is worked in."""
    return {
        **machine(),
        "processor": processor(),
        "versions": {**{name: metadata.version(name) for name in packages}, **others},
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "file_system": file_system(place),
    }


def processor() -> str:
    """What the kernel calls it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model"))]
    return named[0] if named else platform.processor() or "unknown processor"


def file_system(place: Path) -> str:
    """The kind of file system that journals and spools are on: on tmpfs a sync costs nothing."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()]
    inside = [m for m in mounts if place.resolve().is_relative_to(m[1].replace("\\040", " "))]
    return max(inside, key=lambda m: len(m[1]))[2] if inside else "unknown"
