"""Tell systemd how this process is, as sd_notify(3) does: ready, alive, stopping, and a line for `systemctl status`.

A unit with `Type=notify` gives the process a socket by name (NOTIFY_SOCKET), one with `WatchdogSec=` also the time
within which it must hear `WATCHDOG=1` (WATCHDOG_USEC). The loops of agent, coordinator, gateway and broker say that
themselves: a loop that hangs is silent, and systemd starts the process again. In a container a file does the same:
each sign of life touches the one that EDGEFL_HEARTBEAT names, and a health check looks at its age.
"""

import logging
import os
import socket
import time
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

log = logging.getLogger(__name__)

HEARTBEAT = "EDGEFL_HEARTBEAT"
SYSTEMD = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
PARTS = 3  # signs of life within the time that a watchdog allows
FILE_EVERY = 10.0  # seconds between two touches of the file


class ServiceManager:
    """Who started this process and wants to hear of it; where that is neither of them, nothing is said."""

    def __init__(self, environment: MutableMapping[str, str] | None = None) -> None:
        environment = os.environ if environment is None else environment
        # Children must not speak for this process: Mosquitto would, since it knows the same protocol.
        name, microseconds, process = (environment.pop(key, "") for key in SYSTEMD)
        file = environment.get(HEARTBEAT, "")
        self._address = f"\0{name[1:]}" if name.startswith("@") else name
        self._file = Path(file) if file else None
        watched = microseconds.isdigit() and process in {"", str(os.getpid())}
        limit = int(microseconds) / 1e6 / PARTS if watched and name else None
        every = [limit, FILE_EVERY if self._file else None]
        self.every: float | None = min((one for one in every if one), default=None)  # seconds between signs of life
        self._next = 0.0
        self._by_loop = False

    def ready(self, status: str = "") -> None:
        """Say that the process does its work from now on."""
        self._say("READY=1", *([f"STATUS={status}"] if status else []))
        self.beat()

    def status(self, text: str) -> None:
        """Say in a line what the process is doing; "" says nothing new."""
        if text:
            self._say(f"STATUS={text}")

    def beat(self) -> None:
        """Give a sign of life, if one is due."""
        if self.every is None or (now := time.monotonic()) < self._next:
            return
        self._next = now + self.every
        self._say("WATCHDOG=1")
        if self._file is not None:
            try:
                self._file.touch()
            except OSError as error:
                log.warning("no sign of life can be given file=%s why=%s", self._file, error.strerror)

    def stopping(self) -> None:
        """Say that the process is about to end."""
        self._say("STOPPING=1")

    @contextmanager
    def alive(self) -> Iterator[None]:
        """Give signs of life while the block runs, except within `loop`: for work of unknown length."""
        if self.every is None:
            yield
            return
        over = Event()
        thread = Thread(target=self._until, args=(over, self.every), name="signs-of-life", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    @contextmanager
    def loop(self) -> Iterator[None]:
        """Leave all signs of life to a loop that runs in this block and calls `beat`; the process ends after it."""
        self._by_loop = True
        try:
            yield
        finally:
            self._by_loop = False
            self.stopping()

    def _until(self, over: Event, every: float) -> None:
        while not over.wait(every):
            if not self._by_loop:
                self.beat()

    def _say(self, *lines: str) -> None:
        if not self._address:
            return
        text = "\n".join(line.replace("\n", " ") for line in lines).encode()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
            try:
                line.connect(self._address)
                line.send(text)
            except OSError as error:
                log.warning("systemd was not notified of %s: %s", lines[0], error.strerror)
