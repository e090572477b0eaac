"""Which system calls a process that only computes may make: those of the table, every other one fails with EPERM.

The table is what numpy, onnxruntime and torch were seen to need, for memory, threads, time, reading files and speaking
through a socket that is already open. It has no call that opens a socket, starts a program, forks, writes or makes a
file by its name, sends a signal to another process, or changes a limit.

It has no `mremap` either; glibc tries it first to enlarge memory, and can do without. The call can move pieces of the
stack, and each of them grows downwards as far as RLIMIT_STACK, which no other limit counts.
"""

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

# name, number on x86_64, number on aarch64 (- where there is none), and which argument is looked at, if any
TABLE = """
brk                 12  214          mmap                 9  222 own      munmap              11  215
mprotect            10  226 asis     madvise             28  233          mincore             27  232
membarrier         324  283          get_mempolicy      239  236

clone               56  220 thread   futex              202   98          set_robust_list    273   99
set_tid_address    218   96          rseq               334  293          exit                60   93
exit_group         231   94          sched_yield         24  124          sched_getaffinity  204  123
getcpu             309  168          gettid             186  178          getpid              39  172
tgkill             234  131 myself   rt_sigaction        13  134          rt_sigprocmask      14  135
rt_sigreturn        15  139          sigaltstack        131  132          restart_syscall    219  128

clock_gettime      228  113          clock_getres       229  114          clock_nanosleep    230  115
nanosleep           35  101          gettimeofday        96  169          times              100  153
getrusage           98  165          sysinfo             99  179          uname               63  160
getrandom          318  278          prlimit64          302  261 asking   getrlimit           97  163

openat             257   56 reading  open                 2    - reading1 close                3   57
read                 0   63          readv               19   65          pread64             17   67
lseek                8   62          fstat                5   80          newfstatat         262   79
stat                 4    -          lstat                6    -          statx              332  291
access              21    -          faccessat          269   48          faccessat2         439  439
readlink            89    -          readlinkat         267   78          getdents64         217   61
getcwd              79   17          fcntl               72   25 plain    dup                 32   23
fadvise64          221  223          poll                 7    -          ppoll              271   73

write                1   64          writev              20   66          sendmsg             46  211
recvmsg             47  212          sendto              44  206          recvfrom            45  207
getuid             102  174          geteuid            107  175          getgid             104  176
getegid            108  177          getppid            110  173
"""
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # which column, and what the kernel calls it
CLONE3 = 435  # its arguments lie in memory, where a filter cannot look at them: glibc then takes clone
LONGER = 0x40000000  # calls of the x32 kind have numbers from here on

CLONE_THREAD = 0x00010000
MAP_SHARED, MAP_ANONYMOUS = 0x01, 0x20
MAP_GROWSDOWN, MAP_HUGETLB = 0x00100, 0x40000  # the same on both machines
PROT_WRITE = 0x2
F_SETFL, F_DUPFD_CLOEXEC = 4, 1030
NOT_READING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
PR_SET_SECCOMP, FILTER = 22, 2
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # of the kernel's small machine
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16  # where they lie in what it is shown

REFUSED, UNKNOWN = ERRNO | errno.EPERM, ERRNO | errno.ENOSYS


Step: TypeAlias = tuple[int, int, int, int]  # what, how far to go on if it holds, and if not, with what


@dataclass(frozen=True, slots=True)
class Caller:
    """The process that a filter is for, and how many threads it may have."""

    pid: int
    threads: int


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def calls(machine: str) -> Iterator[tuple[str, int, str]]:
    """Name, number here, and what is looked at, of every call that is allowed."""
    column = MACHINES[machine][0]
    words = TABLE.split()
    while words:
        name, *numbers = words[:3]
        looked_at = words[3] if len(words) > 3 and words[3] in _LOOKS else ""
        words = words[4 if looked_at else 3 :]
        if numbers[column] != "-":
            yield name, int(numbers[column]), looked_at


def program(machine: str, caller: Caller) -> bytes:
    """Return the filter, as the kernel reads it."""
    steps: list[Step] = [(LOAD, 0, 0, ARCHITECTURE), (EQUAL, 1, 0, MACHINES[machine][1]), (RETURN, 0, 0, REFUSED)]
    steps += [(LOAD, 0, 0, NUMBER), (AT_LEAST, 0, 1, LONGER), (RETURN, 0, 0, REFUSED)]
    steps += [(EQUAL, 0, 1, CLONE3), (RETURN, 0, 0, UNKNOWN)]
    for _, number, looked_at in calls(machine):
        look = _LOOKS[looked_at](caller) if looked_at else [_YES]
        steps += [(EQUAL, 0, len(look), number), *look]
    return b"".join(struct.pack("<HBBI", *step) for step in [*steps, (RETURN, 0, 0, REFUSED)])


def close(threads: int = 1) -> bool:
    """Allow nothing but the table from here on, for this process and for good; False where there is no such thing.

    `threads` is how many this process may have. It needs `no_new_privs`. A thread that is there already stays as it is.
    """
    machine = platform.machine()
    prctl = getattr(ctypes.CDLL(None, use_errno=True), "prctl", None)
    if prctl is None or machine not in MACHINES:
        return False
    code = program(machine, Caller(os.getpid(), threads))
    return bool(prctl(PR_SET_SECCOMP, FILTER, ctypes.byref(_Program(len(code) // 8, code)), 0, 0) == 0)


_YES: Step = (RETURN, 0, 0, ALLOW)


def _argument(i: int, *tests: Step) -> list[Step]:
    """Look at the lower half of an argument; after the tests comes yes, after that no."""
    return [(LOAD, 0, 0, ARGUMENTS + 8 * i), *tests, _YES, (RETURN, 0, 0, REFUSED)]


_LOOKS: Mapping[str, Callable[[Caller], list[Step]]] = {
    # Only memory that RLIMIT_DATA counts: not what grows downwards like a stack, no huge pages from the machine's pool,
    # and nothing that is shared with others and has no file.
    "own": lambda _: [
        (LOAD, 0, 0, ARGUMENTS + 8 * 3),
        (ANY_BIT, 2, 0, MAP_GROWSDOWN | MAP_HUGETLB),
        (ANY_BIT, 0, 2, MAP_ANONYMOUS),
        (ANY_BIT, 0, 1, MAP_SHARED),
        (RETURN, 0, 0, REFUSED),
        (RETURN, 0, 0, ALLOW),
    ],
    "thread": lambda _: _argument(0, (ANY_BIT, 0, 1, CLONE_THREAD)),  # a new thread, no new process
    # Memory becomes writable when it is mapped, where RLIMIT_DATA counts it. Once RLIMIT_AS is used up, by memory that
    # is only read and costs nothing, the kernel no longer asks RLIMIT_DATA here. The stack of a new thread needs it.
    "asis": lambda caller: _argument(2, (ANY_BIT, 1, 0, PROT_WRITE)) if caller.threads == 1 else [_YES],
    "myself": lambda caller: _argument(0, (EQUAL, 0, 1, caller.pid)),  # abort() sends itself a signal
    "reading": lambda _: _argument(2, (ANY_BIT, 1, 0, NOT_READING)),
    "reading1": lambda _: _argument(1, (ANY_BIT, 1, 0, NOT_READING)),
    # copies of a handle and its flags; not to whom the kernel sends a signal about it, which could be any process
    "plain": lambda _: _argument(1, (AT_LEAST, 0, 1, F_SETFL + 1), (EQUAL, 0, 1, F_DUPFD_CLOEXEC)),
    "asking": lambda _: [  # prlimit without new limits: a null pointer, both halves of it
        (LOAD, 0, 0, ARGUMENTS + 16),
        (EQUAL, 0, 3, 0),
        (LOAD, 0, 0, ARGUMENTS + 20),
        (EQUAL, 0, 1, 0),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, REFUSED),
    ],
}
