"""The terminal that a command was started from: when it is closed, its commands are told by the signal for "reload"."""

import os
import signal


class Terminal:
    """To be made before SIGHUP gets a handler: who is started by `nohup` does not end with his terminal."""

    def __init__(self) -> None:
        self._ends_us = _is_there() and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN

    def closed(self) -> bool:
        """Whether it is gone, and we with it; to be asked now and then: the signal may come before it is."""
        return self._ends_us and not _is_there()


def _is_there() -> bool:
    """Whether we have one; a service has none."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
