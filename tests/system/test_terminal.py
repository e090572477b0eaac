"""A closed terminal ends what was started in it, and nothing that was started by `nohup`; a reload ends nobody."""

import os
import pty
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import fcntl, signal, sys, termios
from queue import SimpleQueue
from edgefl.system.terminal import Terminal
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # ours from now on, as it would be a shell's
if "nohup" in sys.argv:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
terminal, heard = Terminal(), SimpleQueue()
signal.signal(signal.SIGHUP, lambda *_: heard.put(terminal.closed()))
print("ready", flush=True)
with open(sys.argv[1], "a") as told:
    while True:
        closed = heard.get()
        print(closed, file=told, flush=True)
        if closed or len(sys.argv) > 2 and sys.argv[2] == "nohup":
            break
        print("heard", flush=True)
"""


@pytest.mark.parametrize(("how", "told"), [((), ["False", "True"]), (("nohup",), ["False"])], ids=["plainly", "nohup"])
def test_a_signal_means_the_end_only_when_the_terminal_is_gone(how: tuple[str, ...], told: list[str], tmp_path: Path):
    screen, ours = pty.openpty()
    words = [sys.executable, "-c", PROGRAM, str(tmp_path / "told"), *how]
    child = subprocess.Popen(words, stdin=ours, stdout=ours, stderr=ours, start_new_session=True)
    os.close(ours)
    _wait_for(b"ready\r\n", screen)  # whole: who is closed in the middle of a line cannot end it
    if not how:
        child.send_signal(signal.SIGHUP)  # as `edgefl fleet revoke` does
        _wait_for(b"heard\r\n", screen)
    os.close(screen)
    assert child.wait() == 0
    assert (tmp_path / "told").read_text().split() == told


def _wait_for(word: bytes, screen: int) -> None:
    shown = b""
    while word not in shown:
        select.select([screen], [], [])
        shown += os.read(screen, 1024)
