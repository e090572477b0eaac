"""A broker's socket in the file system: users who may enter its folder may speak, and no others.

What is named is a link that stays, in the fleet's own folder; where it leads changes with every start of the broker, to
a path short enough for the kernel. What stands there must be in a folder of ours: a broker that was killed leaves its
link behind, and another user could make a folder of that name in its place.
"""

import os
import socket
from pathlib import Path


def place(link: Path) -> str:
    """The socket's path."""
    path = link.resolve(strict=True)
    if path.parent.parent.stat().st_uid not in (os.geteuid(), 0):
        raise PermissionError(1, f"{path} is in a folder of another user")
    return str(path)


def connect(link: Path) -> socket.socket:
    """A connection to it."""
    return connected(place(link))


def connected(path: str) -> socket.socket:
    """Return a connection to the socket at this path."""
    line = socket.socket(socket.AF_UNIX)
    try:
        line.connect(path)
    except OSError:
        line.close()
        raise
    return line
