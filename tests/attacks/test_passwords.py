"""A broker's password stays where it was given: no journal, checkpoint, log, agent file or command line has it."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.durable.existing_run import settle
from coordinator.durable.journal import NAME
from coordinator.shell.threaded import Threaded
from edgefl.base.errors import ConfigError
from edgefl.cli.app import main
from edgefl.job.config.agent_file import AgentFile
from edgefl.job.config.reader import load, parse
from edgefl.job.config.schema import RunFile
from edgefl.job.run import local_fleet
from edgefl.wire import address, broker
from tools.in_memory_broker import InMemoryBroker

SECRET = "h0rse-battery"
URL = f"mqtt://ann:{SECRET}@127.0.0.1:1883"


@pytest.fixture(autouse=True)
def no_password_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EDGEFL_MQTT_PASSWORD", raising=False)


def run_of(folder: Path, url: str = URL) -> RunFile:
    table = {
        "run": {"name": "quiet", "folder": str(folder)},
        "task": {"data": "digits", "partition": {"kind": "iid", "devices": 2}},
        "broker": {"url": url},
    }
    return parse(RunFile, table, "test", environment={})


def everything(folder: Path) -> Iterator[bytes]:
    for path in folder.rglob("*"):
        if path.is_file():
            yield path.read_bytes()


def test_a_run_keeps_the_password_and_never_writes_it_down(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    folder = tmp_path / "quiet"
    settle(folder, run, fresh=False)
    coordinator = Threaded(run, InMemoryBroker().client("c"), lambda: pytest.fail("not asked"), folder=folder)
    assert coordinator.shell.journal is not None
    coordinator.shell.journal.close()
    assert (folder / NAME).exists()
    assert not any(SECRET.encode() in data for data in everything(tmp_path))
    assert SECRET not in f"{run!r} {run.model_dump_json()} {run.model_dump(mode='json')}"
    assert run.broker.url == URL, "who connects still has it"


def test_an_agent_file_does_not_repeat_it_either() -> None:
    file = parse(AgentFile, {"agent": {"id": "a", "broker": URL}}, "test", environment={})
    assert SECRET not in f"{file!r} {file.model_dump_json()}"


@pytest.mark.parametrize("word", [f"broker.url={URL}", f'broker.url="{URL}"', f'run.broker={{url="{URL}"}}'])
def test_a_password_in_set_is_refused_with_the_remedy_and_not_repeated(word: str, tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("[rounds]\ncohort = 2\n")
    with pytest.raises(ConfigError, match="environment as EDGEFL_MQTT_PASSWORD") as refused:
        load(RunFile, file, [word])
    assert SECRET not in str(refused.value)
    assert refused.value.exit_code == 2


def test_fleet_start_refuses_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["edgefl", "fleet", "start", str(tmp_path / "run.toml"), "--broker", URL])
    with pytest.raises(SystemExit) as ended:
        main()
    error = capsys.readouterr().err
    assert ended.value.code == 2
    assert "EDGEFL_MQTT_PASSWORD" in error
    assert SECRET not in error


@pytest.mark.parametrize("table", [{"broker": URL}, {"broker": {"url": URL, "flet": "x"}}])
def test_a_mistake_beside_it_does_not_show_it(table: dict[str, object]) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(RunFile, {"rounds": {"cohort": 2}, **table}, "test", environment={})
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("start", ["", "mqtt:/", "mqtt//", "http://"])
def test_an_address_that_is_none_does_not_show_it(start: str) -> None:
    with pytest.raises(ConfigError, match=r"…@host") as refused:
        address.parse(f"{start}fleet:{SECRET}@host:1883")
    assert SECRET not in str(refused.value)


def test_a_file_with_a_password_that_others_can_read_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "run.toml"
    file.write_text(f"[rounds]\ncohort = 2\n[broker]\nurl = '{URL}'\n")
    file.chmod(0o644)
    assert load(RunFile, file, environment={}).broker.url == URL
    assert f"chmod 600 file={file}" in caplog.text
    caplog.clear()
    file.chmod(0o600)
    load(RunFile, file, environment={})
    assert caplog.text == ""
    assert SECRET not in caplog.text


@pytest.mark.broker
def test_agents_of_a_fleet_get_it_through_their_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = "import os, sys; print('got', len(os.environ.get('EDGEFL_MQTT_PASSWORD', '')), *sys.argv)"
    with broker.start(0, users={"ann": SECRET}) as running:
        url = f"mqtt://ann:{SECRET}@127.0.0.1:{running.address.port}"
        run = run_of(tmp_path, url)
        real = local_fleet._command
        monkeypatch.setattr(local_fleet, "_command", lambda *a: [sys.executable, "-c", script, *real(*a)[3:]])
        with local_fleet.LocalFleet.of(run, url, 1) as agents:
            agents.wait()
            commands = agents.commands
    assert not any(SECRET in word for words in commands.values() for word in words)
    assert not any(SECRET.encode() in data for data in everything(tmp_path))
    assert f"got {len(SECRET)} " in (local_fleet.agents_folder(run) / "device-00.log").read_text()
    assert "EDGEFL_MQTT_PASSWORD" not in os.environ
