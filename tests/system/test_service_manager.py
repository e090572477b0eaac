"""What systemd hears of our processes, at a real NOTIFY_SOCKET; and what a container's health check looks at."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread

import pytest
from secured_fleet import make

from edgefl.system.clock import SystemClock
from edgefl.system.service_manager import ServiceManager
from edgefl.system.turns import Turns
from edgefl.wire import broker as brokers

EDGEFL = [str(Path(sys.executable).with_name("edgefl"))]
PATIENCE = 30.0
RUN = """
[run]
name = "told"
rounds = 1
[task]
data = "synthetic"
model = "softmax"
[rounds]
cohort = 1
[page]
serve = false
[broker]
url = "{broker}"
"""
AGENT = """
[agent]
id = "pi-01"
broker = "{broker}"
folder = "devices"
connect_timeout = 0
[data]
source = "synthetic"
"""
GATEWAY = """
[gateway]
id = "site-1"
fleet = "centre"
broker = "{broker}"
folder = "gateway"
connect_timeout = 0
[site]
devices = 2
[broker]
url = "{broker}"
"""


class Systemd:
    """The service manager's end of the socket."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "notify"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(self.path))
        self.socket.settimeout(PATIENCE)

    def environment(self, watchdog: float = 0.6) -> dict[str, str]:
        return {"NOTIFY_SOCKET": str(self.path), "WATCHDOG_USEC": str(int(watchdog * 1e6))}

    def hears(self, wanted: str) -> list[str]:
        """All lines up to one that begins so."""
        lines: list[str] = []
        while not any(line.startswith(wanted) for line in lines):
            lines += self.socket.recv(65536).decode().split("\n")
        return lines

    def hears_nothing(self, seconds: float) -> bool:
        """Whether it is silent for that long, once all that came before has been read."""
        self.socket.settimeout(0)
        try:
            while self.socket.recv(65536):
                pass
        except BlockingIOError:
            pass
        self.socket.settimeout(seconds)
        try:
            self.socket.recv(65536)
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(PATIENCE)
        return False


@pytest.fixture
def systemd() -> Iterator[Systemd]:
    with TemporaryDirectory() as folder:  # tmp_path is too long for a socket's path
        manager = Systemd(Path(folder))
        yield manager
        manager.socket.close()


@contextmanager
def running(systemd: Systemd, folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, **systemd.environment()}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([*EDGEFL, *words], cwd=folder, env=environment, stdout=log, stderr=log, text=True)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()


def hangs_and_ends(systemd: Systemd, process: subprocess.Popen[str]) -> None:
    """It gives signs of life, falls silent while it hangs, and says that it ends."""
    for _ in range(3):
        systemd.hears("WATCHDOG=1")
    process.send_signal(signal.SIGSTOP)
    time.sleep(0.5)
    assert systemd.hears_nothing(1.5), "a process that hangs is silent, and is started again"
    process.send_signal(signal.SIGCONT)
    systemd.hears("WATCHDOG=1")
    process.terminate()
    systemd.hears("STOPPING=1")
    assert process.wait(PATIENCE) in {0, 130}


@pytest.mark.night
@pytest.mark.broker
@pytest.mark.parametrize("kind", ["agent", "gateway", "coordinator"])
def test_agent_gateway_and_coordinator_tell_systemd_how_they_are(kind: str, systemd: Systemd, tmp_path: Path):
    files = {"agent": AGENT, "gateway": GATEWAY, "coordinator": RUN}
    statuses = {
        "agent": "STATUS=device 'pi-01' serves mqtt://",
        "gateway": "STATUS=gateway 'site-1' serves mqtt://",
        "coordinator": "STATUS=run 'told' waits: ",
    }
    with brokers.start() as broker:
        (tmp_path / "file.toml").write_text(files[kind].format(broker=broker.address))
        words = ["--no-rehearse", "--json"] if kind == "coordinator" else []
        with running(systemd, tmp_path, kind, "start", "file.toml", *words) as process:
            lines = systemd.hears("READY=1")
            if kind == "coordinator":
                lines += systemd.hears(statuses[kind])
            assert any(line.startswith(statuses[kind]) for line in lines)
            hangs_and_ends(systemd, process)


def test_a_coordinator_that_waits_for_its_broker_is_ready_and_alive(systemd: Systemd, tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as line:
        url = f"mqtt://127.0.0.1:{line.getsockname()[1]}"
    (tmp_path / "run.toml").write_text(RUN.format(broker=url))
    with running(systemd, tmp_path, "coordinator", "start", "run.toml", "--no-rehearse"):
        systemd.hears("READY=1")
        systemd.hears("STATUS=waiting for the broker")
        for _ in range(3):
            systemd.hears("WATCHDOG=1")


@pytest.mark.broker
def test_the_broker_is_ready_when_it_accepts_connections_and_mosquitto_does_not_speak_for_it(
    systemd: Systemd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    if brokers.find_mosquitto() is None:
        pytest.skip("mosquitto is not installed")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    secured = make(tmp_path)
    with running(systemd, tmp_path, "broker", "start") as process:
        assert systemd.hears("READY=1") == ["READY=1", f"STATUS=listens on {secured.address}"]
        socket.create_connection(("127.0.0.1", secured.port)).close()
        lives_on = systemd.hears("WATCHDOG=1")
        assert set(lives_on) <= {"WATCHDOG=1"}
        process.terminate()
        assert set(systemd.hears("STOPPING=1")) <= {"WATCHDOG=1", "STOPPING=1"}
        assert process.wait(PATIENCE) == 0


class Hangs:
    """A shell that hangs in one of its turns."""

    def __init__(self) -> None:
        self.ended, self.go_on, self.hangs = False, Event(), Event()

    def start(self) -> None:
        pass

    def handle(self, event: object) -> None:
        if event == "hang":
            self.hangs.set()
            self.go_on.wait(PATIENCE)
        self.ended = event == "end"

    def deadline(self) -> float | None:
        return None


def test_a_loop_that_hangs_gives_no_sign_of_life_though_its_process_lives(systemd: Systemd):
    manager, shell = ServiceManager(systemd.environment(0.15)), Hangs()
    turns = Turns(SystemClock(), manager.beat, manager.every)
    with manager.alive():
        with manager.loop():
            thread = Thread(target=turns.serve, args=(shell,))
            thread.start()
            systemd.hears("WATCHDOG=1")
            turns.post("hang")
            assert shell.hangs.wait(PATIENCE)
            assert systemd.hears_nothing(0.5)
            shell.go_on.set()
            systemd.hears("WATCHDOG=1")
            turns.post("end")
            thread.join(PATIENCE)
        assert systemd.hears("STOPPING=1")
        systemd.hears("WATCHDOG=1")  # until the process ends


def test_children_do_not_inherit_the_socket(systemd: Systemd):
    environment = {**systemd.environment(), "WATCHDOG_PID": str(os.getpid()), "HOME": "/"}
    manager = ServiceManager(environment)
    assert environment == {"HOME": "/"}
    assert manager.every == pytest.approx(0.2)


def test_a_watchdog_that_is_meant_for_another_process_is_not_answered(systemd: Systemd):
    environment = {**systemd.environment(), "WATCHDOG_PID": "1"}
    manager = ServiceManager(environment)
    assert manager.every is None
    manager.ready("here")
    assert systemd.hears("READY=1") == ["READY=1", "STATUS=here"]


def test_an_abstract_socket_is_reached_too():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.bind(f"\0edgefl-test-{os.getpid()}")
        line.settimeout(PATIENCE)
        ServiceManager({"NOTIFY_SOCKET": f"@edgefl-test-{os.getpid()}"}).status("one\ntwo")
        assert line.recv(100) == b"STATUS=one two"


def test_nothing_is_said_where_no_manager_started_the_process():
    manager = ServiceManager({})
    assert manager.every is None
    with manager.alive(), manager.loop():
        manager.ready("here")
        manager.beat()


def test_a_socket_that_is_gone_ends_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready()
    assert "systemd was not notified of READY=1" in caplog.text


def test_a_container_sees_signs_of_life_at_a_file(tmp_path: Path):
    file = tmp_path / "alive"
    manager = ServiceManager({"EDGEFL_HEARTBEAT": str(file)})
    manager.ready("here")
    assert file.exists()
    assert manager.every == 10
