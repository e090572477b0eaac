"""What `edgefl server start` costs while no run is on: memory and processor time, with many devices connected.

Everything is real: the server's process, its Mosquitto, one TLS connection for each device. Measured twice:
without a browser, and while a browser's stream of the fleet's page is open.
"""

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPResponse
from pathlib import Path
from urllib.request import Request, urlopen

from edgefl.base.errors import RunError
from edgefl.fleet import kit as kits
from edgefl.fleet.administration import FleetAdministration
from edgefl.fleet.authority import clock
from edgefl.ops.bench.secured import HOST
from edgefl.server.folder import Here
from edgefl.system import processes
from edgefl.wire.broker import free_port
from tools.bench.presences import name_of
from tools.processes import python

NAME = "bench"
EACH = 250  # devices of one process: paho waits with select(), which knows 1,024 files
PATIENCE = 300.0  # seconds until all are there
FILE = '[server]\nfleets = ["{fleet}"]\nenrolment = false\n[page]\nport = 0\n'


@dataclass(frozen=True, slots=True)
class IdleCost:
    """What a process took in a span of time."""

    situation: str
    devices: int
    seconds: float
    resident_mb: float
    share_of_core: float


def measure(devices: int, seconds: float, say: Callable[[str], None]) -> list[IdleCost]:
    """Return what the server costs without a browser, and while one shows its page."""
    with tempfile.TemporaryDirectory(prefix="edgefl-bench-") as name, ExitStack() as until_done:
        folder = Path(name)
        environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
        os.environ["XDG_STATE_HOME"] = environment["XDG_STATE_HOME"]
        fleet = FleetAdministration.new(NAME, [HOST], free_port(HOST, 0), clock())
        for number in range(devices):
            kits.write(fleet.add(name_of(number), clock()), folder / f"{name_of(number)}.kit")
        say(f"{devices} devices are members")
        server = until_done.enter_context(_server(folder, environment))
        here = _announced(folder, server)
        for first in range(0, devices, EACH):
            until_done.enter_context(_present(folder, first, min(first + EACH, devices), environment))
        token = here.token_file.read_text().strip()
        _wait_for(here.url, token, devices)
        say("all of them are there")
        time.sleep(seconds / 2)  # what their coming cost is over
        costs = [_cost("without a browser", server.pid, devices, seconds)]
        with _browser(here.url, token):
            time.sleep(2.0)
            costs.append(_cost("with a browser", server.pid, devices, seconds))
        return costs


@contextmanager
def _server(folder: Path, environment: dict[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    file = folder / "server.toml"
    file.write_text(FILE.format(fleet=NAME))
    command = processes.python("edgefl", "server", "start", str(file))
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder)  # noqa: S603 - ours
        try:
            yield server
        finally:
            server.terminate()
            server.wait(60)


def _announced(folder: Path, server: "subprocess.Popen[bytes]") -> Here:
    """Return how the server is reached, once it says so."""
    file = folder / "state" / "edgefl" / "server" / "here.json"
    until = time.monotonic() + PATIENCE
    while not file.exists():
        if server.poll() is not None or time.monotonic() > until:
            raise RunError(f"the server does not serve: {(folder / 'server.log').read_text()[-500:]}")
        time.sleep(0.1)
    return Here.model_validate_json(file.read_bytes())


@contextmanager
def _present(folder: Path, first: int, last: int, environment: dict[str, str]) -> Iterator[None]:
    """Let these devices be there."""
    command = python("tools.bench.presences", str(folder), str(first), str(last))
    devices = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603
    try:
        if devices.stdout is None or not devices.stdout.readline():
            raise RunError("devices cannot connect to the broker")
        yield
    finally:
        devices.communicate()


def _wait_for(url: str, token: str, devices: int) -> None:
    """Wait until the server knows that all are there."""
    until = time.monotonic() + PATIENCE
    want = f'edgefl_devices{{fleet="{NAME}",state="idle"}} {float(devices)!r}'
    while want not in _get(url, "/metrics", token).read().decode():
        if time.monotonic() > until:
            raise RunError("not all devices are there for the server")
        time.sleep(1.0)


@contextmanager
def _browser(url: str, token: str) -> Iterator[None]:
    """Read the stream of the fleet's page, as a browser does."""
    stream = _get(url, f"/fleets/{NAME}/events", token)
    reader = threading.Thread(target=lambda: [None for _ in stream], daemon=True)
    reader.start()
    yield


def _get(url: str, path: str, token: str) -> HTTPResponse:
    answer: HTTPResponse = urlopen(Request(url + path, headers={"Authorization": f"Bearer {token}"}), timeout=3600)  # noqa: S310
    return answer


def _cost(situation: str, process: int, devices: int, seconds: float) -> IdleCost:
    before, began = _processor_seconds(process), time.monotonic()
    time.sleep(seconds)
    spent, passed = _processor_seconds(process) - before, time.monotonic() - began
    return IdleCost(situation, devices, passed, _resident(process) / 1e6, spent / passed)


def _processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident(process: int) -> float:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(1024.0 * int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
