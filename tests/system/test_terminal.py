"""A closed terminal ends what was started in it, and nothing that was started by `nohup`; a reload ends nobody."""

import os
import pty
import select
import signal
import subprocess
import sys

BEGIN = """
import fcntl, signal, sys, termios, time
from queue import SimpleQueue
from edgefl.system import terminal as terminals
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # ours from now on, as it would be a shell's
{before}
terminal, heard = terminals.Terminal(), SimpleQueue()
signal.signal(signal.SIGHUP, lambda *_: heard.put(None))
print("ready", flush=True)
heard.get()
"""
PLAINLY = """
print("closed" if terminal.closed() else "open", flush=True)
while not terminal.closed():
    time.sleep(0.01)
"""
NOHUP = """
while terminals._is_there():
    time.sleep(0.01)
sys.exit(terminal.closed())
"""


def started(program: str, before: str = "") -> tuple[subprocess.Popen[bytes], int]:
    """A process in a terminal of its own, and our side of the terminal."""
    screen, theirs = pty.openpty()
    words = [sys.executable, "-c", BEGIN.format(before=before) + program]
    child = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    wait_for(b"ready\r\n", screen)
    return child, screen


def wait_for(line: bytes, screen: int) -> None:
    shown = b""
    while line not in shown:
        select.select([screen], [], [])
        shown += os.read(screen, 1024)


def test_a_reload_ends_nobody_and_a_closed_terminal_does():
    child, screen = started(PLAINLY)
    child.send_signal(signal.SIGHUP)  # as `edgefl fleet revoke` does
    wait_for(b"open\r\n", screen)
    os.close(screen)
    assert child.wait() == 0


def test_who_was_started_by_nohup_goes_on():
    child, screen = started(NOHUP, "signal.signal(signal.SIGHUP, signal.SIG_IGN)")
    os.close(screen)
    assert child.wait() == 0
