"""A process that gives up what it does not need: memory without end, files, programs, the network.

Each measure is asked of the kernel, and what it does not have is told, not an error.
"""

import ctypes
import resource
import sys
import sysconfig
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from edgefl.system import landlock, seccomp

PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38
FILES = 64  # open at a time
STACK = 8 << 20  # bytes of the main thread's stack, which RLIMIT_DATA does not count
# Bytes of addresses that are reserved and not used: seen were 31 MB, and 72 MB more with each thread (heap and stack).
RESERVED, RESERVED_BY_A_THREAD = 256 << 20, 128 << 20
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


def confine(memory: int | None, *, threads: int = 1, files: bool = True) -> Confined:
    """Give all up, for good; to be called while the process has one thread and has imported what it needs.

    `memory` is how many bytes it may still take, `threads` how many it may have: with 1 it can start no other one. A
    process that needs a GPU takes None, and keeps its `files` and its calls: a driver wants more of all that than we
    know.
    """
    done = {
        "limits": memory is not None and _limits(memory, threads),
        "first_to_go": _first_to_go(),
        "no_new_privs": prctl(PR_SET_NO_NEW_PRIVS, 1),
    }
    version = landlock.close(readable()) if files and done["no_new_privs"] else 0
    done[f"landlock {version}" if version else "landlock"] = bool(version)
    done["seccomp"] = files and done["no_new_privs"] and seccomp.close(threads)
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


def _limits(memory: int, threads: int) -> bool:
    """Allow no core (samples would be in it), no byte into a file, few open files, and so much more memory.

    RLIMIT_DATA counts memory of its own that can be written to. RLIMIT_AS is a second net, for kinds of memory that
    the first does not count: it counts all addresses, so it also has room for what is reserved and never used.
    """
    limits = {resource.RLIMIT_CORE: 0, resource.RLIMIT_FSIZE: 0, resource.RLIMIT_NOFILE: FILES}
    if threads == 1:
        limits[resource.RLIMIT_NPROC] = 0
    try:
        mapped, writable = memory_taken()
        limits |= {resource.RLIMIT_DATA: writable + memory, resource.RLIMIT_STACK: STACK}
        for which, most in limits.items():
            resource.setrlimit(which, (most, most))
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        room = mapped + memory + RESERVED + threads * RESERVED_BY_A_THREAD
        # The hard limit stays: a process that lends memory to this one may add that to its limit, from outside.
        resource.setrlimit(resource.RLIMIT_AS, (_below(room, hard), hard))
    except (OSError, ValueError):
        return False
    return True


def allow_mapping(pid: int, size: int) -> None:
    """Let a confined process map this number of bytes more, which are lent to it; below zero: fewer."""
    with suppress(OSError, ValueError):
        soft, hard = resource.prlimit(pid, resource.RLIMIT_AS)
        if soft != resource.RLIM_INFINITY:
            more = soft + size
            resource.prlimit(
                pid, resource.RLIMIT_AS, (more if hard == resource.RLIM_INFINITY else min(more, hard), hard)
            )


def _below(soft: int, hard: int) -> int:
    """Return the soft limit that this hard limit allows."""
    return soft if hard == resource.RLIM_INFINITY else min(soft, hard)


def memory_taken() -> tuple[int, int]:
    """Bytes of addresses that this process has mapped, and of those that it has for itself and can write to."""
    words = Path("/proc/self/statm").read_text(encoding="utf-8").split()
    return int(words[0]) * resource.getpagesize(), int(words[5]) * resource.getpagesize()


def limit_data(more: int) -> None:
    """Let this process have this number of bytes more for itself that it can write to."""
    _, writable = memory_taken()
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (_below(writable + more, hard), hard))


def _first_to_go() -> bool:
    """Where memory runs out, the kernel ends this process before others."""
    try:
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="utf-8")
    except OSError:
        return False
    return True
