"""Commands that change a fleet are written into the audit log: who, when, what, and how it ended."""

import getpass
import logging
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

from edgefl.base.errors import EdgeflError

log = logging.getLogger(__name__)

CHANGES = {  # what is written down, by the first two words of the command
    "fleet": {
        *("init", "add", "site", "revoke", "label", "forget", "host", "settings", "renew", "claim", "accept", "reject"),
    },
}
VALUES = {"--fleet"}  # options of these commands that name the fleet


@contextmanager
def audited(words: Sequence[str]) -> Iterator[None]:
    """Carry out a command; what changes a fleet is written down, with its outcome."""
    if not _changes(words):
        yield
        return
    try:
        yield
    except EdgeflError as error:
        _write(words, "refused", str(error))
        raise
    except SystemExit as ended:
        _write(words, "done" if ended.code in {None, 0} else "failed")
        raise
    _write(words, "done")


def _changes(words: Sequence[str]) -> bool:
    if not words or "--help" in words:
        return False
    return len(words) > 1 and words[1] in CHANGES.get(words[0], set())


def _write(words: Sequence[str], outcome: str, about: str = "") -> None:
    """Write one line; a command that has done its work does not fail because of it."""
    from edgefl.fleet.audit import AuditLog, Deed
    from edgefl.server.folder import folder

    what = f"{words[0]}.{words[1]}" if len(words) > 1 and not words[1].startswith("-") else words[0]
    subject = next((word for word in words[2:] if not word.startswith("-")), "")
    fleet = next((value for option, value in pairwise(words) if option in VALUES), "")
    who = f"{getpass.getuser()}@{socket.gethostname()}"
    try:
        AuditLog.opened(folder()).write(Deed(who, what, "this machine", fleet, subject, outcome, about), time.time())
    except (EdgeflError, OSError) as error:
        log.warning("not in the audit log: %s %s: %s", what, subject, error)
        sys.stderr.write(f"edgefl: this is not in the audit log: {error}\n")
