"""A coordinator waits for its broker, says so now and then, and ends only with what waiting cannot mend."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from secured_fleet import broker, make

from coordinator.shell.broker_wait import REMIND, wait_for_broker
from edgefl.base.errors import ConfigError
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.wire import broker as brokers
from edgefl.wire.address import BrokerAway

EDGEFL = [str(Path(sys.executable).with_name("edgefl"))]
RUN = """
[run]
name = "waits"
rounds = 1
[task]
data = "synthetic"
model = "softmax"
[rounds]
cohort = 1
[page]
serve = false
[broker]
"""


class Hours:
    """A broker that is away for some attempts, and a clock that sleeping moves."""

    def __init__(self, *attempts: Exception | None) -> None:
        self.attempts, self.now, self.lines = list(attempts), 0.0, list[str]()

    def check(self, _: RunFile) -> None:
        if error := self.attempts.pop(0):
            raise error

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def wait(self) -> list[str]:
        run = parse(RunFile, {"rounds": {"cohort": 1}, "broker": {"url": "mqtt://b:1883"}}, "a test", environment={})
        wait_for_broker(run, self.lines.append, check=self.check, sleep=self.sleep, now=lambda: self.now)
        return self.lines


def test_a_broker_that_is_there_is_not_spoken_of():
    assert Hours(None).wait() == []


def test_the_same_reason_is_said_once_and_again_after_ten_minutes():
    hours = Hours(*[BrokerAway("refused")] * 200, None)
    waits = "waiting for the broker, Ctrl-C ends it: refused"
    assert hours.wait() == [waits, waits, "the broker is there: mqtt://b:1883"]
    assert REMIND < hours.now < 2 * REMIND


def test_another_reason_is_said_at_once():
    assert Hours(BrokerAway("unknown"), BrokerAway("refused"), None).wait() == [
        "waiting for the broker, Ctrl-C ends it: unknown",
        "waiting for the broker, Ctrl-C ends it: refused",
        "the broker is there: mqtt://b:1883",
    ]


def test_what_waiting_cannot_mend_ends_it():
    with pytest.raises(ConfigError, match="not authorized"):
        Hours(BrokerAway("refused"), ConfigError("not authorized")).wait()


@contextmanager
def coordinator(
    folder: Path, broker_section: str, *words: str, rehearse: bool = False
) -> Iterator[subprocess.Popen[str]]:
    (folder / "run.toml").write_text(RUN + broker_section)
    command = [*EDGEFL, "coordinator", "start", "run.toml", "--json", *words]
    command += [] if rehearse else ["--no-rehearse"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str], pattern: str) -> str:
    """The first line on stderr that matches."""
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        if re.search(pattern, line):
            return line
    raise AssertionError("".join(seen))


def started(process: subprocess.Popen[str]) -> bool:
    assert process.stdout is not None
    return any(json.loads(line)["event"] == "started" for line in process.stdout)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as line:
        port: int = line.getsockname()[1]
    return port


@pytest.mark.broker
def test_a_coordinator_that_comes_first_begins_when_its_broker_is_there(tmp_path: Path):
    port = free_port()
    with coordinator(tmp_path, f'url = "mqtt://127.0.0.1:{port}"\n') as process:
        waits = line_of(process, "waiting for the broker")
        assert waits.startswith("edgefl: waiting for the broker, Ctrl-C ends it: broker mqtt://127.0.0.1")
        assert "is not reachable (connection refused): start it with `edgefl broker start`" in waits
        with brokers.start(port):
            assert line_of(process, "the broker is there")
            assert started(process)


@pytest.mark.broker
def test_a_coordinator_of_a_fleet_waits_for_the_fleets_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    secured = make(tmp_path, "pi-1")
    with coordinator(tmp_path, "") as process:
        assert "is not reachable (the broker of this machine's fleet is not running)" in line_of(process, "waiting")
        with broker(secured):
            assert line_of(process, "the broker is there: unix://")
            assert started(process)


def test_ctrl_c_ends_the_waiting(tmp_path: Path):
    with coordinator(tmp_path, f'url = "mqtt://127.0.0.1:{free_port()}"\n') as process:
        line_of(process, "waiting for the broker")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130


@pytest.mark.broker
@pytest.mark.mosquitto
def test_a_broker_that_refuses_the_login_ends_it_with_2(tmp_path: Path):
    with brokers.start(users={"ann": "secret"}) as running:
        about = f'url = "mqtt://ann:wrong@127.0.0.1:{running.address.port}"\n'
        with coordinator(tmp_path, about) as process:
            assert process.wait(60) == 2
            assert "the broker refused" in line_of(process, "edgefl: broker")


def test_a_wrong_file_ends_it_with_2_though_the_broker_is_away(tmp_path: Path):
    away = f'url = "mqtt://127.0.0.1:{free_port()}"\n'
    with coordinator(tmp_path, away, "--set", "task.model=resnet-42", rehearse=True) as process:
        assert process.wait(120) == 2
        assert line_of(process, "resnet-42")
