"""`edgefl doctor`: one line for each thing, and an exit code that a script can use."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from edgefl.cli.app import main
from edgefl.ops.doctor import engines
from edgefl.ops.doctor.broker_probe import BrokerProbe
from edgefl.ops.doctor.finding import ok
from edgefl.wire.broker import Broker

Doctor = Callable[..., tuple[int, str, str]]


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Doctor:
    """The command in a fresh folder: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    # tests/doctor tries the engines; here they would only cost seconds.
    monkeypatch.setattr(engines, "onnxruntime", lambda: ok("onnxruntime", "fine"))
    monkeypatch.setattr(engines, "torch", lambda needed: ok("torch", f"needed {needed}"))

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["edgefl", "doctor", *words])
        with pytest.raises(SystemExit) as end:
            main()
        captured = capsys.readouterr()
        return int(end.value.code or 0), captured.out, captured.err

    return run


def agent(broker: str) -> str:
    Path("agent.toml").write_text(f"[agent]\nid = 'pi-1'\nbroker = '{broker}'\nfolder = 'state'\n")
    return "agent.toml"


def test_a_healthy_machine_ends_with_zero_and_a_line_for_each(doctor: Doctor) -> None:
    code, out, err = doctor()
    *lines, last = out.splitlines()
    assert (code, err) == (0, "")
    assert {line.split()[0] for line in lines} <= {"ok", "warning"}
    odd = sum(line.startswith("warning") for line in lines)
    assert last == f"{len(lines)} looked at, {f'{odd} to know about, ' if odd else ''}0 wrong"


def test_an_agent_s_way_to_its_broker_is_tried(doctor: Doctor, mosquitto: Broker) -> None:
    code, out, _ = doctor(agent(str(mosquitto.address)), "--json")
    levels = {line["what"]: line["level"] for line in map(json.loads, out.splitlines())}
    assert code == 0
    assert [levels[what] for what in ("folder", "broker", "login", "message", "packets")] == ["ok"] * 5
    assert "Mosquitto" not in levels  # a device runs no broker


def test_one_wrong_thing_is_exit_code_one(doctor: Doctor) -> None:
    code, out, _ = doctor(agent("mqtt://127.0.0.1:1"))
    assert code == 1
    assert "wrong    broker       mqtt://127.0.0.1:1 is not reachable (connection refused): start it with" in out
    assert out.splitlines()[-1].endswith("1 wrong")


@pytest.mark.parametrize(("host", "key"), [("192.0.2.1", ""), ("127.0.0.1", ""), ("192.0.2.1", "ed25519:" + "A" * 43)])
def test_an_agent_across_a_network_must_know_its_coordinator(
    host: str, key: str, doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgefl.ops.doctor.network.reachable", lambda _: None)  # nobody lives there, and it takes long
    monkeypatch.setattr("edgefl.ops.doctor.network.probe_broker", lambda *_: BrokerProbe(""))
    if key:
        monkeypatch.setenv("EDGEFL_AGENT__COORDINATOR", key)
    code, out, _ = doctor(agent(f"mqtt://pi-1@{host}:1883"), "--json")
    findings = {line["what"]: line for line in map(json.loads, out.splitlines())}
    wrong = host != "127.0.0.1" and not key
    assert code == 1
    assert findings["coordinator"]["level"] == ("wrong" if wrong else "ok")
    assert wrong == ("`edgefl coordinator key run.toml` prints it" in (findings["coordinator"]["remedy"] or ""))


def test_an_address_that_is_none_is_a_finding(doctor: Doctor) -> None:
    code, out, _ = doctor(agent("mqt://server"), "--json")
    assert (code, json.loads(out.splitlines()[-1])["what"]) == (1, "broker")


@pytest.mark.parametrize(
    ("text", "needed"),
    [("[rounds]\ncohort = 2\n", True), ("[agent]\n", False), ("[agent]\n[compute]\nbackend = 'torch'\n", True)],
    ids=["run", "agent", "agent with torch"],
)
def test_torch_is_needed_by_the_coordinator_and_where_a_file_asks_for_it(
    doctor: Doctor, text: str, needed: bool
) -> None:
    Path("file.toml").write_text(text)
    assert f"needed {needed}" in doctor("file.toml")[1]
    assert "needed True" in doctor("file.toml", "--torch")[1]


def test_a_key_that_others_can_read_is_found(doctor: Doctor, mosquitto: Broker) -> None:
    Path("id.key").write_text("secret")
    Path("id.key").chmod(0o644)
    Path("run.toml").write_text(f"[rounds]\ncohort=2\n[broker]\nurl='{mosquitto.address}'\nidentity='id.key'\n")
    code, out, _ = doctor("run.toml")
    assert code == 1
    assert "id.key can be read by others (mode 644): chmod 600 id.key" in out


def test_a_wrong_file_is_exit_code_two(doctor: Doctor) -> None:
    code, out, err = doctor("nowhere.toml")
    assert (code, out) == (2, "")
    assert "no such file" in err
    assert doctor("--set", "run.rounds=1")[0] == 2


@pytest.mark.parametrize("broker", ["mqtt://127.0.0.1:1", "mqtt://nowhere.invalid", "mqtt:/slip", "unix://slip"])
def test_what_is_to_be_corrected_is_a_key_of_the_file_at_hand(doctor: Doctor, broker: str) -> None:
    said = doctor(agent(broker))[1]
    assert "agent.broker" in said
    assert "broker.url" not in said
    Path("run.toml").write_text(f"[broker]\nurl = '{broker}'\n[task]\npartition = {{ kind = 'iid', devices = 2 }}\n")
    code, said, refused = doctor("run.toml")
    assert code
    assert "broker.url" in said + refused
    assert "agent.broker" not in said + refused
