import os
import select
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from edgefl.base.errors import ConfigError
from edgefl.wire import broker as brokers
from edgefl.wire.address import reachable
from edgefl.wire.broker import Broker

PARENT = """
import sys
from edgefl.wire import broker
running = broker.start(prefer=sys.argv[1])
print(running.address.port, flush=True)
sys.stdin.read()
"""
LOGIN = r"""
import queue, sys
from dataclasses import replace
from edgefl.wire import broker
from edgefl.wire.mqtt import MqttTransport
login = {"username": "ann", "password": "s\u00e9same"}
with broker.start(prefer=sys.argv[1], users={login["username"]: login["password"]}) as running:
    events, transport = queue.SimpleQueue(), MqttTransport(replace(running.address, **login), "ann")
    transport.start(events.put)
    print(type(events.get(timeout=60)).__name__)
    transport.close()
"""

QUEUED = """
import ctypes, resource
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
def sent(size=480 << 10, messages=90):
    packets = [libc.malloc(size) for _ in range(messages)]
    for packet in packets:
        ctypes.memset(packet, 1, size)
    for packet in packets:
        libc.free(packet)
sent()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
sent()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.fixture(params=["mosquitto", "iotcore"])
def kind(request: pytest.FixtureRequest) -> str:
    installed = brokers.find_mosquitto() is not None if request.param == "mosquitto" else brokers.has_iotcore()
    if not installed:
        pytest.skip(f"{request.param} is not installed")
    return request.param


def test_a_broker_accepts_connections_until_it_is_closed(broker: Broker):
    reachable(broker.address)
    broker.close()
    broker.close()
    with pytest.raises(ConfigError, match="connection refused"):
        reachable(broker.address)


@pytest.mark.skipif("CS_GNU_LIBC_VERSION" not in os.confstr_names, reason="only glibc reads these variables")
def test_memory_that_mosquitto_frees_is_there_for_the_next_messages():
    def cleared(environment: dict[str, str]) -> int:
        done = subprocess.run(
            [sys.executable, "-c", QUEUED], capture_output=True, text=True, check=True, env=os.environ | environment
        )
        return int(done.stdout)

    assert cleared(brokers.HEAP) < 100  # pages
    assert cleared({}) > 5_000  # of 10,800


def test_a_broker_listens_on_loopback_only(broker: Broker):
    with socket.socket() as other:
        other.bind(("127.0.0.2", broker.address.port))  # fails if somebody has the port on all addresses


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that nobody can reach, unlike pytest's own: what a killed parent leaves there goes away."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.broker
def test_a_killed_parent_leaves_no_broker_behind(kind: str, open_folder: Path):
    command = [sys.executable, "-c", PARENT, kind]
    env = {**os.environ, "TMPDIR": str(open_folder)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as parent:
        port = int(parent.stdout.readline())
        with socket.create_connection(("127.0.0.1", port), 5.0) as connection:
            os.kill(parent.pid, signal.SIGKILL)
            readable, _, _ = select.select([connection], [], [], 20.0)
            assert readable, "the broker still holds the connection"
    assert refused_in_time(port)


def refused_in_time(port: int) -> bool:
    """Whether nobody listens any more; a dying process gives up its connections a moment before its listener."""
    until = time.monotonic() + 20.0
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), 5.0).close()
        except ConnectionRefusedError:  # noqa: PERF203 - the loop is there for the error
            return True
        except ConnectionResetError:  # taken up by a listener that died a moment later
            continue
    return False


@pytest.mark.broker
def test_a_broker_outlives_the_thread_that_started_it(kind: str):
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(brokers.start, prefer=kind).result()
    with running:
        reachable(running.address)


@pytest.mark.broker
def test_its_files_are_kept_in_a_given_folder_and_removed_otherwise(kind: str, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with brokers.start(prefer=kind):
        (own,) = tmp_path.iterdir()
        assert any(own.iterdir())
    assert not own.exists()
    with brokers.start(directory=own, prefer=kind):
        pass
    assert any(own.iterdir())


@pytest.mark.broker
def test_passwords_are_not_readable_by_others(kind: str, tmp_path):
    with brokers.start(directory=tmp_path, prefer=kind, users={"ann": 'a"b\\c'}):
        holder = tmp_path / ("passwords" if kind == "mosquitto" else "rumqttd.toml")
        assert stat.S_IMODE(holder.stat().st_mode) == 0o600


@pytest.mark.broker
def test_a_password_with_an_accent_is_the_same_in_every_locale(kind: str):
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    child = subprocess.run(
        [sys.executable, "-c", LOGIN, kind], capture_output=True, text=True, check=False, timeout=120, env=env
    )
    assert child.stdout == "ConnectionMade\n", child.stderr


def test_a_taken_port_is_named_with_the_remedy():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ConfigError) as refused:
            brokers.start(port)
    assert str(refused.value) == (
        f"broker port {port} on 127.0.0.1 cannot be used (address already in use): "
        "choose another with --port, or connect to the broker that has it"
    )


def test_an_open_broker_stays_on_loopback():
    with pytest.raises(ConfigError, match=r"broker bind 0\.0\.0\.0: an open broker stays on 127\.0\.0\.1"):
        brokers.start(bind="0.0.0.0")


def test_a_user_for_everybody_stays_there_too():
    with pytest.raises(ConfigError, match="one user for all is for a bench and stays on 127"):
        brokers.start(bind="0.0.0.0", users={"fleet": "secret"})


@pytest.mark.broker
def test_both_may_leave_it_where_that_is_meant(kind: str):
    with brokers.start(bind="0.0.0.0", prefer=kind, insecure=True) as running:
        reachable(running.address)


@pytest.mark.parametrize(
    ("prefer", "remedies"),
    [("auto", ("apt install", "edgefl[broker]")), ("mosquitto", ("apt",)), ("iotcore", ("edgefl[broker]",))],
)
def test_no_broker_at_all_is_told_with_the_remedies(monkeypatch, prefer, remedies):
    monkeypatch.setattr(brokers, "find_mosquitto", lambda: None)
    monkeypatch.setattr(brokers, "has_iotcore", lambda: False)
    with pytest.raises(ConfigError) as refused:
        brokers.start(prefer=prefer)
    assert all(remedy in str(refused.value) for remedy in remedies)


def test_without_mosquitto_iotcore_is_taken(monkeypatch):
    monkeypatch.setattr(brokers, "find_mosquitto", lambda: None)
    monkeypatch.setattr(brokers, "has_iotcore", lambda: True)
    assert brokers._choose("auto") == "iotcore"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_broker_of_the_command_line_that_is_ended_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "edgefl", "broker", "start", "--fleet", "none", "--port", "0"]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert "listens on" in process.stdout.readline()
        process.send_signal(number)
    assert process.returncode == 0
    assert not list(tmp_path.iterdir())
