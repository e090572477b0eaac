"""Which files a process may still open: those below some folders, for reading; and no TCP, where the kernel knows how.

Landlock is the kernel's own (since 5.13), needs no rights and holds for the calling thread and those it starts.
"""

import ctypes
import os
import struct
from collections.abc import Iterable
from pathlib import Path

CREATE, ADD, RESTRICT = 444, 445, 446  # the same numbers on every architecture
VERSION, BENEATH = 1, 1
READ_FILE, READ_DIR = 1 << 2, 1 << 3
FILES = {1: 13, 2: 14, 3: 15, 5: 16}  # the number of rights to files from each version of the interface on
TCP = 0b11  # bind and connect, from version 4 on
ABROAD = 0b11  # sockets without a file and signals, to processes outside of this domain; from version 6 on


def version() -> int:
    """What this kernel speaks; 0 if it has no Landlock, or does not use it."""
    return max(0, _call(CREATE, None, 0, VERSION))


def close(readable: Iterable[Path]) -> int:
    """From here on nothing can be opened but what is below these, for reading. Gives back the version, 0 for nothing.

    It needs `no_new_privs`.
    """
    known = version()
    if not known:
        return 0
    files = (1 << max(count for since, count in FILES.items() if since <= known)) - 1
    about = struct.pack("<QQQ", files, TCP, ABROAD)[: 8 if known < 4 else 16 if known < 6 else 24]
    rules = _call(CREATE, about, len(about), 0)
    if rules < 0:
        return 0
    try:
        for path in readable:
            _allow(rules, path)
        return known if _call(RESTRICT, rules, 0) == 0 else 0
    finally:
        os.close(rules)


def _allow(rules: int, path: Path) -> None:
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # it is not there, so it cannot be read
    rights = READ_FILE | READ_DIR if path.is_dir() else READ_FILE
    try:
        _call(ADD, rules, BENEATH, struct.pack("<Qi", rights, handle), 0)
    finally:
        os.close(handle)


def _call(number: int, *arguments: int | bytes | None) -> int:
    syscall = getattr(ctypes.CDLL(None, use_errno=True), "syscall", None)
    if syscall is None or not hasattr(os, "O_PATH"):
        return -1
    wide = (ctypes.c_long(one) if isinstance(one, int) else one for one in arguments)
    return int(syscall(ctypes.c_long(number), *wide))
