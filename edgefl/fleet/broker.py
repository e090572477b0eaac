"""The fleet's broker as a process of ours: Mosquitto with the fleet's configuration, until a signal ends it.

It reads copies of the fleet's files in a folder of its own: as root we become nobody, and nobody cannot enter an
operator's home. SIGHUP makes it read them again (so does `systemctl reload`), and certificates that end soon are
renewed meanwhile. `lock` in the fleet's broker folder names the process that serves, and is held by it.
"""

import logging
import os
import shutil
import signal
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from queue import Empty, SimpleQueue

from edgefl.errors import ConfigError, RunError
from edgefl.fleet import mosquitto
from edgefl.fleet.administration import Fleet
from edgefl.fleet.authority import clock
from edgefl.fleet.folder import FleetFolder
from edgefl.protocol.address import Address
from edgefl.protocol.broker import NOBODY, find_mosquitto, free_port, wait_until_up
from edgefl.system.locks import own
from edgefl.system.processes import Child

log = logging.getLogger(__name__)

LOG = "broker.log"
LOOK = 1.0  # seconds between looks whether it is still there
HOUR = 3600.0  # seconds between looks at the dates of certificates


def serve(fleet: Fleet, ready: Callable[[], None]) -> None:
    """Run it until SIGINT or SIGTERM; `ready` is called when it accepts connections."""
    signals: SimpleQueue[int] = SimpleQueue()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: signals.put(number))
    with own(fleet.folder.broker, remedy="the broker of this fleet runs already"):
        fleet.refresh(clock())
        with running(fleet) as (child, home):
            ready()
            looked = time.monotonic()
            while not child.gone.is_set():
                with suppress(Empty):
                    if signals.get(timeout=LOOK) != signal.SIGHUP:
                        return
                    _reload(fleet, child, home)
                if time.monotonic() - looked > HOUR:
                    looked = time.monotonic()
                    if fleet.refresh(clock()):
                        _reload(fleet, child, home)
            raise RunError(_how_it_ended(child))


def reload(folder: FleetFolder) -> bool:
    """Let the fleet's broker read its files again, if it is a process of ours on this machine."""
    with suppress(OSError, ValueError), (folder.broker / "lock").open("r+") as file:
        try:
            flock(file, LOCK_EX | LOCK_NB)
        except BlockingIOError:  # its owner is alive
            os.kill(int(file.read()), signal.SIGHUP)
            return True
    return False


def _how_it_ended(child: Child) -> str:
    code = child.exit_code or 0
    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}: {child.last_words()}"
    return f"mosquitto {how}; its log is {child.output}. Start it again: devices and runs come back by themselves"


@contextmanager
def running(fleet: Fleet) -> Iterator[tuple[Child, Path]]:
    """Its Mosquitto, and the folder that it reads; it ends with the block."""
    program = find_mosquitto()
    if program is None:
        raise ConfigError("a secured fleet needs Mosquitto, which is not installed here: apt install mosquitto")
    settings = fleet.settings
    every = settings.bind or "0.0.0.0"  # noqa: S104  only looked at
    remedy = (
        "the fleet's devices know it by this port, so end what listens there (`ss -ltnp` names it);"
        " `edgefl fleet init --fleet OTHER --port N` makes a fleet with another one"
    )
    free_port(every, settings.port, remedy)
    free_port(settings.here.host, settings.here.port, remedy)
    home = Path(tempfile.mkdtemp(prefix="edgefl-broker-"))
    reaches = all(parent.stat().st_mode & stat.S_IXOTH for parent in home.parents)
    user = NOBODY if os.geteuid() == 0 and reaches else None
    if user is not None:
        home.chmod(0o711)  # it stays ours: in a folder of nobody's own, links would lead our writing elsewhere
    try:
        _install(fleet, home, user)
        (fleet.folder.path / LOG).unlink(missing_ok=True)
        command = [program, "-c", str(home / mosquitto.CONFIGURATION)]
        child = Child(command, fleet.folder.path / LOG, user=user)
        try:
            wait_until_up(child, Address("mqtts", settings.bind or "127.0.0.1", settings.port))
            yield child, home
        finally:
            child.stop()
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _reload(fleet: Fleet, child: Child, home: Path) -> None:
    installed = home / mosquitto.CONFIGURATION
    _install(fleet, home, installed.owner() if installed.stat().st_uid != os.geteuid() else None)
    if child.process is not None:
        child.process.send_signal(signal.SIGHUP)
    log.info("the broker reads its files again fleet=%s", fleet.folder.name)


def _install(fleet: Fleet, home: Path, user: str | None) -> None:
    """What Mosquitto reads, in its own folder; each file is exchanged whole."""
    texts = {name: (fleet.folder.broker / name).read_bytes() for name in mosquitto.FILES}
    stay = "user root\n" if os.geteuid() == 0 else ""  # a change of user now would undo the kernel's watch
    texts[mosquitto.CONFIGURATION] = (mosquitto.configuration(fleet.settings, home) + stay).encode()
    for name, data in texts.items():
        fresh = home / f".{name}.new"
        fresh.touch(mode=0o600)
        fresh.write_bytes(data)
        if user is not None:
            shutil.chown(fresh, user)
        fresh.replace(home / name)
