"""A secured fleet for tests: its folder, its real Mosquitto as `edgefl broker start` runs it, plain clients at it."""

import os
import queue
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from edgefl.fleet import enrolment
from edgefl.fleet.administration import FleetAdministration
from edgefl.fleet.authority import clock
from edgefl.fleet.kit import Kit
from edgefl.wire.address import Address
from edgefl.wire.broker import find_mosquitto
from edgefl.wire.tls import Tls

PATIENCE = 20.0
# Not `python -m`: it would look for the package in the folder where it is run, and the state has one of that name.
EDGEFL = [str(Path(sys.executable).with_name("edgefl"))]


def free_ports() -> int:
    """A port that is free, and so is the one for enrolment."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as first:
            port: int = first.getsockname()[1]
            if port < 65534:
                try:
                    socket.create_server(("127.0.0.1", port + 2)).close()
                except OSError:
                    continue
                return port


@dataclass(frozen=True)
class Secured:
    """A fleet whose folder is in `state`."""

    fleet: FleetAdministration
    state: Path
    kits: dict[str, Kit]

    @property
    def port(self) -> int:
        return self.fleet.settings.port

    @property
    def address(self) -> Address:
        return self.fleet.settings.broker

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "XDG_STATE_HOME": str(self.state), "PYTHONUNBUFFERED": "1"}

    def tls(self, name: str) -> Tls:
        """The files of a member, or of the coordinator."""
        if name == "coordinator":
            return self.fleet.folder.coordinator_tls()
        kit, home = self.kits[name], self.state / "devices"
        home.mkdir(exist_ok=True)
        files = Tls(ca=home / "ca.crt", certificate=home / f"{name}.crt", key=home / f"{name}.key")
        for path, text in ((files.ca, kit.ca), (files.certificate, kit.certificate), (files.key, kit.key)):
            assert path is not None
            path.touch(mode=0o600)
            path.write_text(text)
        return files

    def edgefl(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [*EDGEFL, *words]
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=120, check=False, cwd=self.state
        )


def make(state: Path, *devices: str) -> Secured:
    """A fleet at a free port of loopback; XDG_STATE_HOME must be `state`."""
    assert os.environ["XDG_STATE_HOME"] == str(state)
    fleet = FleetAdministration.new("default", ["127.0.0.1"], free_ports(), clock())
    return Secured(fleet, state, {name: fleet.add(name, clock()) for name in devices})


@contextmanager
def started(secured: Secured, *words: str) -> Iterator[IO[str]]:
    """A command that does not end by itself, and what it writes to stderr."""
    command = [*EDGEFL, *words]
    with subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env=secured.environment,
        cwd=secured.state,
    ) as process:
        try:
            assert process.stderr is not None
            yield process.stderr
        finally:
            process.kill()


@contextmanager
def broker(secured: Secured) -> Iterator[subprocess.Popen[str]]:
    """The fleet's broker, as an operator starts it."""
    if find_mosquitto() is None:
        pytest.skip("mosquitto is not installed")
    command = [*EDGEFL, "broker", "start"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=secured.environment) as process:
        try:
            assert process.stdout is not None
            assert "listens on" in process.stdout.readline()
            yield process
        finally:
            process.terminate()


@contextmanager
def enrolling(fleet: FleetAdministration) -> Iterator[list[str]]:
    """Who has joined at a listener that runs meanwhile."""
    joined: list[str] = []
    over, ready = threading.Event(), threading.Event()
    thread = threading.Thread(target=enrolment.serve, args=(fleet, joined.append, over.is_set, ready.set))
    thread.start()
    assert ready.wait(PATIENCE)
    yield joined
    over.set()
    thread.join(60)
    assert not thread.is_alive()


class Party:
    """A plain paho client with somebody's certificate, and what the broker tells it."""

    def __init__(self, port: int, files: Tls, client: str = "whatever") -> None:
        self.told: queue.Queue[object] = queue.Queue()
        self.client = paho.Client(CallbackAPIVersion.VERSION2, client_id=client, protocol=paho.MQTTv5)
        self.client.on_connect = lambda _c, _u, _f, reason, _p: self.told.put(reason.value)
        self.client.on_disconnect = lambda *_: self.told.put("disconnected")
        self.client.on_subscribe = lambda _c, _u, _m, reasons, _p: self.told.put("subscribed")
        self.client.on_publish = lambda _c, _u, _m, reason, _p: self.told.put(reason.value)
        self.client.on_message = lambda _c, _u, message: self.told.put((message.topic, message.payload))
        self.client.tls_set_context(context(files))
        self.client.reconnect_delay_set(60, 60)  # who is put out stays out for this test
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        self.connected = self.told.get(timeout=PATIENCE)

    def publish(self, topic: str, payload: bytes = b"x") -> object:
        """The reason code that the broker acknowledges it with."""
        self.client.publish(topic, payload, qos=1)
        return self.told.get(timeout=PATIENCE)

    def subscribe(self, *filters: str) -> None:
        self.client.subscribe([(filter, 1) for filter in filters])
        assert self.told.get(timeout=PATIENCE) == "subscribed"

    def hears(self) -> object:
        return self.told.get(timeout=PATIENCE)

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()
        self.client._reset_sockets()  # paho leaves them to the garbage collector


def context(files: Tls) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=files.ca)
    made.verify_flags |= ssl.VERIFY_X509_STRICT  # as Python 3.13 does by itself
    if files.certificate is not None:
        made.load_cert_chain(files.certificate, files.key)
    return made
