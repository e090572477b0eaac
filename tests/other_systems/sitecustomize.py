"""Keep from this project's modules what another operating system lacks, wherever this folder is in the path.

Python imports a module of this name before all others, in child processes too. EDGEFL_SYSTEM says which system to
imitate: `win32` or `darwin`. The standard library and installed packages see Linux as it is.
"""

import builtins
import os
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

OURS = {"edgefl", "device_agent", "coordinator", "gateway"}
MODULES = {
    "win32": {"curses", "fcntl", "grp", "posix", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty"},
    "darwin": set[str](),
}
# What `mypy --platform` calls missing on that system, and more of the kind.
NAMES = {
    "win32": {
        "os": "WIFSIGNALED WTERMSIG chown fchmod fchown fdatasync fork getegid geteuid getgid getloadavg getpgid"
        " getuid killpg lchown memfd_create mkfifo nice openpty pipe2 posix_fadvise posix_fallocate preadv pread pwrite"
        " sched_getaffinity sched_setaffinity setgid setpgid setpriority setsid setuid statvfs sysconf uname wait wait4"
        " writev MFD_ALLOW_SEALING MFD_CLOEXEC O_CLOEXEC O_DIRECT O_DIRECTORY O_NOFOLLOW O_NONBLOCK O_PATH O_SYNC",
        "signal": "SIGALRM SIGCHLD SIGHUP SIGKILL SIGPIPE SIGQUIT SIGUSR1 SIGUSR2 SIGXCPU alarm pthread_kill"
        " pthread_sigmask setitimer siginterrupt",
        "socket": "AF_UNIX MSG_DONTWAIT SCM_RIGHTS SO_PEERCRED SO_REUSEPORT recv_fds send_fds",
        "select": "POLLERR POLLHUP POLLIN POLLOUT epoll poll",
        "time": "CLOCK_BOOTTIME CLOCK_MONOTONIC clock_gettime",
    },
    "darwin": {
        "os": "MFD_ALLOW_SEALING MFD_CLOEXEC O_DIRECT O_PATH fdatasync memfd_create pipe2 posix_fadvise posix_fallocate"
        " sched_getaffinity sched_setaffinity",
        "resource": "prlimit",
        "socket": "SO_PEERCRED",
        "select": "epoll",
        "time": "CLOCK_BOOTTIME",
    },
}


class Partial(ModuleType):
    """A module without some of its names."""

    def __init__(self, whole: ModuleType, lacks: str, instead: dict[str, Any]) -> None:
        super().__init__(whole.__name__)
        of = SimpleNamespace(whole=whole, lacks=set(lacks.split()), instead=instead)
        object.__getattribute__(self, "__dict__")["_partial"] = of

    def __getattribute__(self, name: str) -> Any:
        of = object.__getattribute__(self, "__dict__")["_partial"]
        if name in of.lacks:
            raise AttributeError(f"module '{of.whole.__name__}' has no attribute '{name}'")
        return of.instead[name] if name in of.instead else getattr(of.whole, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(object.__getattribute__(self, "__dict__")["_partial"].whole, name, value)


def imitate(system: str) -> None:
    """Import modules for the project as that system has them."""
    given = builtins.__import__
    # Windows opens a file by a number in text mode unless told otherwise.
    instead: dict[str, dict[str, Any]] = {"sys": {"platform": system}}
    if system == "win32":
        instead |= {"os": {"name": "nt", "O_BINARY": 0}, "ctypes": {"windll": _windll()}}
    partial = {
        name: Partial(import_module(name), NAMES[system].get(name, ""), instead.get(name, {}))
        for name in NAMES[system].keys() | instead.keys()
    }
    others = {"msvcrt": _msvcrt()} if system == "win32" else {}

    def import_(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        importer = (globals or {}).get("__name__", "").partition(".")[0]
        if importer not in OURS or level:
            return given(name, globals, locals, fromlist, level)
        if name.partition(".")[0] in MODULES[system]:
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
        if "." in name and not fromlist:
            given(name, globals, locals, fromlist, level)  # `import os.path` gives `os`
            name = name.partition(".")[0]
        return partial.get(name) or others.get(name) or given(name, globals, locals, fromlist, level)

    builtins.__import__ = import_


def _windll() -> SimpleNamespace:
    """What Windows says of its memory, of this system's own."""

    def status(reference: Any) -> None:
        assert reference._obj[0] == 64, "the size of MEMORYSTATUSEX"
        reference._obj[1] = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    return SimpleNamespace(kernel32=SimpleNamespace(GlobalMemoryStatusEx=status))


def _msvcrt() -> ModuleType:
    """Windows' locks of some bytes of a file, made of this system's own."""
    import errno
    import fcntl
    import struct

    def locking(file: int, mode: int, size: int) -> None:
        at = os.lseek(file, 0, os.SEEK_CUR)
        try:
            kind = {0: fcntl.F_UNLCK, 2: fcntl.F_WRLCK}[mode]
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack("hhqqi", kind, os.SEEK_SET, at, size, 0))
        except BlockingIOError:
            raise PermissionError(errno.EACCES, "Permission denied") from None  # what Windows says

    module = ModuleType("msvcrt")
    module.__dict__.update(LK_UNLCK=0, LK_NBLCK=2, locking=locking)
    return module


if (named := os.environ.get("EDGEFL_SYSTEM")) in NAMES:
    imitate(named)
