"""A process that gives up what it does not need: memory without end, files, programs, the network.

Each measure is asked of the kernel, and what it does not have is told, not an error.
"""

import ctypes
import resource
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from edgefl.system import landlock, seccomp

PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38
FILES = 64  # open at a time
LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache")
MACHINE = ("/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system/cpu", "/dev/urandom", "/dev/null")


@dataclass(frozen=True, slots=True)
class Confined:
    """What holds, and what this kernel would not give."""

    got: tuple[str, ...]
    missing: tuple[str, ...]

    def __str__(self) -> str:
        without = f", without {', '.join(self.missing)}" if self.missing else ""
        return f"{', '.join(self.got) or 'nothing'}{without}"


def confine(memory: int | None, *, threads: bool = True, files: bool = True) -> Confined:
    """Give all up, for good; to be called while the process has one thread and has imported what it needs.

    `memory` is how many bytes it may still take. A process that needs a GPU takes None, and keeps its `files` and its
    calls: a driver wants more of all that than we know.
    """
    done = {
        "limits": memory is not None and _limits(memory, threads=threads),
        "first_to_go": _first_to_go(),
        "no_new_privs": prctl(PR_SET_NO_NEW_PRIVS, 1),
    }
    version = landlock.close(readable()) if files and done["no_new_privs"] else 0
    done[f"landlock {version}" if version else "landlock"] = bool(version)
    done["seccomp"] = files and done["no_new_privs"] and seccomp.close()
    return Confined(tuple(name for name in done if done[name]), tuple(name for name in done if not done[name]))


def readable() -> Iterable[Path]:
    """Where libraries lie, and what they ask about the machine."""
    ours = Path(__file__).parents[1]
    python = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    python |= {path for path in sys.path if Path(path).name in {"site-packages", "dist-packages"}}
    return [ours, ours.parent / "device_agent", *(Path(path) for path in (*sorted(python), *LIBRARIES, *MACHINE))]


def prctl(option: int, value: int) -> bool:
    """Ask for something about this process; False where that cannot be had."""
    call = getattr(ctypes.CDLL(None), "prctl", None)
    return call is not None and call(option, ctypes.c_ulong(value), 0, 0, 0) == 0


def _limits(memory: int, *, threads: bool) -> bool:
    """No core (samples would be in it), no byte into a file, few open files, so much more memory of its own."""
    limits = {resource.RLIMIT_CORE: 0, resource.RLIMIT_FSIZE: 0, resource.RLIMIT_NOFILE: FILES}
    if not threads:
        limits[resource.RLIMIT_NPROC] = 0
    try:
        limits[resource.RLIMIT_DATA] = _taken() + memory
        for which, most in limits.items():
            resource.setrlimit(which, (most, most))
    except (OSError, ValueError):
        return False
    return True


def _taken() -> int:
    """Bytes that this process has for itself and can write to, used or not: what RLIMIT_DATA counts."""
    return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[5]) * resource.getpagesize()


def _first_to_go() -> bool:
    """Where memory runs out, the kernel ends this process before others."""
    try:
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="utf-8")
    except OSError:
        return False
    return True
