"""The machine itself: word size, C library, Python, clock, memory, processor.

Each look is a function of what it looks at, so that a test can show it machines we do not have.
"""

import platform
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import psutil

from edgefl import __file__ as here
from edgefl.ops.doctor.finding import Finding, ok, warning, wrong

OLDEST_GLIBC = (2, 28)  # what the aarch64 wheels of numpy and onnxruntime are built for
PYTHONS = ((3, 10), (3, 13))
RELEASED = datetime(2026, 11, 1, tzinfo=timezone.utc)  # of this version: no clock is right that shows less
AN_AGENT_TAKES = 150 << 20  # bytes, with a small model
CPUINFO = Path("/proc/cpuinfo")


def machine() -> Iterator[Finding]:
    """Everything about the machine that does not depend on a file of ours."""
    yield word_size(platform.machine(), sys.maxsize.bit_length() + 1)
    yield libc(*platform.libc_ver())
    yield python(sys.version_info[:2])
    yield clock(datetime.now(timezone.utc), built())
    seen = psutil.virtual_memory()
    yield memory(seen.available, seen.total)
    yield processor(platform.machine(), CPUINFO.read_text(errors="replace") if CPUINFO.exists() else "")


def word_size(architecture: str, bits: int) -> Finding:
    if bits == 64:
        return ok("64-bit", f"{architecture}, {bits}-bit Python")
    remedy = "install a 64-bit system: the packages have no wheels for 32 bits"
    return wrong("64-bit", f"Python is {bits}-bit on {architecture}", remedy)


def libc(name: str, version: str) -> Finding:
    oldest = ".".join(map(str, OLDEST_GLIBC))
    remedy = f"use a system with glibc {oldest} or later (Debian 10, Ubuntu 20.04, JetPack 6)"
    if name != "glibc":
        return wrong("glibc", f"the C library is {name or 'not glibc'}, for which onnxruntime has no wheels", remedy)
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_GLIBC:
        return wrong("glibc", f"{version} is older than {oldest}", remedy)
    return ok("glibc", version)


def python(version: tuple[int, ...]) -> Finding:
    oldest, newest = PYTHONS
    text = ".".join(map(str, version))
    if oldest <= version <= newest:
        return ok("Python", text)
    return wrong("Python", f"{text} is not 3.{oldest[1]} to 3.{newest[1]}", "make a venv with one of these")


def built() -> datetime:
    """When this package came into being: its release, or later when its files were written here."""
    written = datetime.fromtimestamp(Path(here).stat().st_mtime, timezone.utc)
    return max(RELEASED, written - timedelta(days=1))  # an unpacked file may carry the clock of another machine


def clock(now: datetime, built_at: datetime) -> Finding:
    """The time zone does not matter; a clock that lost its battery does, because certificates have dates."""
    text = f"{now:%Y-%m-%d %H:%M} UTC"
    if now >= built_at:
        return ok("clock", text)
    remedy = "set it (timedatectl set-ntp true): TLS needs the right date"
    return wrong("clock", f"{text} is before this package was made ({built_at:%Y-%m-%d})", remedy)


def memory(available: int, total: int) -> Finding:
    text = f"{available >> 20} of {total >> 20} MB free"
    if available >= 2 * AN_AGENT_TAKES:
        return ok("memory", text)
    remedy = f"an agent with a small model takes about {AN_AGENT_TAKES >> 20} MB: end other programs, or add swap"
    return (warning if available >= AN_AGENT_TAKES else wrong)("memory", text, remedy)


def processor(architecture: str, cpuinfo: str) -> Finding:
    """A Cortex-A72 (Raspberry Pi 4) lacks `atomics`, which newer wheels take for granted."""
    if architecture not in {"aarch64", "arm64"}:
        return ok("processor", architecture)
    lines = [line for line in cpuinfo.splitlines() if line.startswith("Features")]
    if not lines or all("atomics" in line.split() for line in lines):
        return ok("processor", f"{architecture}{', atomics' if lines else ''}")
    text = f"{architecture} without 'atomics' (as a Raspberry Pi 4): newer torch and onnxruntime die on it"
    return warning("processor", text, "stay with onnxruntime 1.23.2 and, where it is needed at all, torch 2.9.1")
