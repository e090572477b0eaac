"""A server in a process of its own, with its broker, real devices and runs: killed and started again."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mail_server import mail_server
from receiver import receiving
from secured_fleet import EDGEFL, free_ports

from edgefl.fleet.audit import AuditLog, verify

pytestmark = [pytest.mark.mosquitto, pytest.mark.broker, pytest.mark.night]

RUN = """
[run]
name = "{name}"
rounds = {rounds}
[task]
data = "digits"
model = "softmax"
partition = {{ kind = "iid", devices = 2 }}
[algorithm]
name = "fedavg"
lr = 0.1
batch = 32
[rounds]
quorum = 2
deadline = 30.0
"""


class Machine:
    """One home, with a server and two devices."""

    def __init__(self, home: Path) -> None:
        home.mkdir(exist_ok=True)
        self.home, self.port = home, free_ports()
        self.environment = {**os.environ, "HOME": str(home), "XDG_STATE_HOME": str(home / "state")}
        self.environment.pop("EDGEFL_BESIDE", None)
        self.running: list[subprocess.Popen[bytes]] = []
        trial = home / "trial.toml"
        trial.write_text(RUN.format(name="trial", rounds=1))
        self(
            "fleet",
            "init",
            "--devices",
            "d1,d2",
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
            "--trial",
            str(trial),
        )

    def __call__(self, *words: str, code: int = 0) -> str:
        done = subprocess.run(
            [*EDGEFL, *words],
            capture_output=True,
            text=True,
            cwd=self.home,
            env=self.environment,
            check=False,
            timeout=120,
        )
        assert done.returncode == code, done.stderr + done.stdout
        return done.stdout

    def start(self, *words: str, **environment: str) -> "subprocess.Popen[bytes]":
        with (self.home / f"{words[0]}.log").open("ab") as log:
            process = subprocess.Popen(
                [*EDGEFL, *words], cwd=self.home, env={**self.environment, **environment}, stdout=log, stderr=log
            )
        self.running.append(process)
        return process

    def devices(self) -> None:
        for name in ("d1", "d2"):
            home = self.home / name
            home.mkdir()
            self.start("agent", "enrol", f"{name}.kit", HOME=str(home), XDG_STATE_HOME=str(home / "state"))

    def submit(self, name: str, rounds: int, more: str = "") -> None:
        file = self.home / f"{name}.toml"
        file.write_text(RUN.format(name=name, rounds=rounds) + more)
        self("run", "submit", str(file))

    def run(self, name: str) -> dict[str, object]:
        answer: dict[str, object] = json.loads(self("run", "show", name, "--json"))
        return answer

    def waits_for(self, holds: Callable[[], bool], seconds: float = 120.0) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                if holds():
                    return
            except AssertionError:  # the server has just been started
                pass
            time.sleep(0.5)
        logs = "\n".join(path.read_text(errors="replace")[-3000:] for path in self.home.rglob("*.log"))
        raise AssertionError(f"not in {seconds:g} s:\n{logs}")

    def stop(self) -> None:
        for process in reversed(self.running):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.running:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:  # noqa: PERF203 - rarely
                process.kill()
                process.wait()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    made.stop()
    shutil.rmtree(tmp_path, ignore_errors=True)


def online(machine: Machine) -> bool:
    return "2" in [line.split()[3] for line in machine("server", "fleets").splitlines()[1:]]


def test_runs_survive_a_server_that_is_killed_and_the_fleet_is_seen_between_them(machine: Machine) -> None:
    server = machine.start("server", "start")
    machine.devices()
    machine.waits_for(lambda: online(machine))
    machine.submit("first", 40)
    machine.submit("second", 2)
    machine.waits_for(lambda: machine.run("first")["phase"] == "working")
    server.kill()
    server.wait()
    machine.start("server", "start")
    machine.waits_for(lambda: all(machine.run(name)["phase"] == "finished" for name in ("first", "second")), 300.0)
    folder = machine.home / "state" / "edgefl" / "server"
    assert sorted(path.name for path in (folder / "runs").iterdir() if path.name[0] != ".") == ["first", "second"]
    book = AuditLog.opened(folder)
    assert verify(book.disk, book.signer.key) == ""
    told = [(entry.what, entry.subject) for entry in book.entries()]
    assert told.count(("run is finished", "first")) == 1
    assert machine("status", "--json")  # a run's folder is found as before
    machine.waits_for(lambda: online(machine))


ALERTS = """
[alerts]
away = "1s"
[alerts.mail]
host = "127.0.0.1"
port = {port}
tls = "none"
from = "edgefl@example.org"
to = ["ann@example.org"]
[[alerts.webhook]]
url = "{url}"
"""


def test_a_device_that_goes_away_is_told_once_by_mail_and_webhook_over_a_kill(machine: Machine) -> None:
    with mail_server() as mail, receiving() as hook:
        (machine.home / "server.toml").write_text(ALERTS.format(port=mail.port, url=hook.url))
        server = machine.start("server", "start", "server.toml")
        machine.devices()
        machine.waits_for(lambda: online(machine))
        machine.running[-1].kill()  # d2
        machine.waits_for(lambda: bool(mail.mails and hook.calls), 240.0)
        server.kill()
        server.wait()
        machine.start("server", "start", "server.toml")
        machine.waits_for(lambda: "d2 has been away for" in machine("server", "alerts"))
        assert [one["Subject"].startswith("edgefl: fleet 'default': d2 has been away") for one in mail.mails] == [True]
        assert [one["data"]["alerts"][0]["subject"] for one in hook.messages()] == ["d2"]
