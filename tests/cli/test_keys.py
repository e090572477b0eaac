"""The keys that an operator copies between server and devices, by the commands that are used for it."""

import sys
from pathlib import Path

import pytest

from coordinator.shell.device_keys import DeviceKeys
from edgefl.cli.app import main
from edgefl.system.locks import own
from edgefl.wire import signing
from edgefl.wire.signing import Signer

KEY = signing.key_text(bytes(32))  # the same in every process that collects tests
RUN = '[rounds]\ncohort = 1\n[broker]\nurl = "mqtt://localhost:1883"\nidentity = "fleet.key"\n'


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def edgefl(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["edgefl", *words])
        with pytest.raises(SystemExit) as end:
            main()
        captured = capsys.readouterr()
        return int(end.value.code or 0), captured.out.strip(), captured.err.strip()

    return run


def test_the_server_says_the_same_key_every_time_and_where_its_other_half_is(edgefl):
    Path("run.toml").write_text(RUN)
    code, key, where = edgefl("coordinator", "key", "run.toml")
    assert (code, len(signing.key_bytes(key)), where) == (0, 32, "edgefl: the private key is fleet.key")
    assert edgefl("coordinator", "key", "run.toml")[1] == key
    assert Path("fleet.key").stat().st_mode & 0o777 == 0o600


def test_an_agent_file_with_something_else_is_refused_in_one_line(edgefl):
    Path("agent.toml").write_text('[agent]\ncoordinator = "SHA256:abc"\n')
    code, _, why = edgefl("agent", "start", "agent.toml")
    assert code == 2
    assert why == (
        "edgefl: agent.toml: agent.coordinator = \"SHA256:abc\": a key begins with 'ed25519:';"
        " `edgefl coordinator key run.toml` prints it"
    )


def test_a_damaged_identity_stops_the_coordinator_before_anything_else_is_done(edgefl, monkeypatch):
    Path("run.toml").write_text(RUN.replace("mqtt://localhost:1883", "embedded"))
    Path("fleet.key").touch(mode=0o600)
    code, _, why = edgefl("coordinator", "start", "run.toml")
    assert (code, why.count("\n")) == (2, 0)
    assert why.startswith("edgefl: the coordinator's key fleet.key is not an Ed25519 key in PEM without a password")
    assert not Path("runs").exists()


# ---- what a device says about itself ---------------------------------------------------------------------------


AGENT = "[agent]\nid = 'pi-01'\nfolder = 'state'\n"


def test_a_device_says_the_same_key_every_time_and_where_its_other_half_is(edgefl):
    Path("agent.toml").write_text(AGENT)
    code, key, where = edgefl("agent", "key", "agent.toml")
    assert (code, len(signing.key_bytes(key)), where) == (
        0,
        32,
        "edgefl: the private key of 'pi-01' is state/pi-01/device.key",
    )
    assert edgefl("agent", "key", "agent.toml")[1] == key
    assert edgefl("agent", "key", "agent.toml", "--set", "agent.id=pi-02")[1] != key


def test_it_says_so_while_its_agent_is_running(edgefl):
    Path("agent.toml").write_text(AGENT)
    with own(Path("state/pi-01")):
        assert edgefl("agent", "key", "agent.toml")[0] == 0


def test_an_agent_file_that_is_not_there_is_named(edgefl):
    code, key, why = edgefl("agent", "key", "nowhere.toml")
    assert (code, key) == (2, "")
    assert why == "edgefl: nowhere.toml: no such file; `edgefl agent enrol NAME.kit` writes one, or `edgefl init`"


def test_a_folder_that_cannot_be_made_is_named(edgefl):
    Path("agent.toml").write_text(AGENT)
    Path("state").touch()
    code, key, why = edgefl("agent", "key", "agent.toml")
    assert (code != 0, key, why.count("\n")) == (True, "", 0)
    assert why.startswith("edgefl: state/pi-01/device.key: cannot be ")


@pytest.mark.parametrize("words", [("agent", "key"), ("agent", "start")])
def test_a_devices_key_that_others_can_read_is_refused(words, edgefl):
    Path("agent.toml").write_text(AGENT + "[data]\nsource = 'synthetic'\n")
    edgefl("agent", "key", "agent.toml")
    Path("state/pi-01/device.key").chmod(0o644)
    code, _, why = edgefl(*words, "agent.toml", *(["--log", "error"] if words[1] == "start" else []))
    assert code == 2
    assert why == (
        "edgefl: the device's key state/pi-01/device.key can be read by others (mode 644):"
        " chmod 600 state/pi-01/device.key"
    )


# ---- what the server forgets -----------------------------------------------------------------------------------


def test_a_name_that_was_forgotten_is_free_and_others_stay(edgefl):
    Path("run.toml").write_text(RUN)
    keys = DeviceKeys(Path("fleet.devices"))
    for device in ("pi-01", "pi-02"):
        keys.pin(device, Signer.new().key)
    assert edgefl("coordinator", "forget", "run.toml", "pi-01") == (0, "", "edgefl: forgot the key of 'pi-01'")
    left = DeviceKeys(Path("fleet.devices"))
    assert (left.of("pi-01"), left.of("pi-02")) == (None, keys.of("pi-02"))
    assert Path("fleet.devices").stat().st_mode & 0o777 == 0o600
    assert edgefl("coordinator", "forget", "run.toml", "pi-01")[0] == 2, "it is not there any more"


def test_a_coordinator_that_is_running_notices(edgefl):
    """It owns its run, not the keys of its fleet: nobody has to stop it."""
    Path("run.toml").write_text("[run]\nname = 't'\n" + RUN)
    before, after = Signer.new().key, Signer.new().key
    running = DeviceKeys(Path("fleet.devices"))
    running.pin("pi-01", before)
    with own(Path("runs/.t")):
        assert not running.admits("pi-01", after)
        assert edgefl("coordinator", "forget", "run.toml", "pi-01")[0] == 0
        assert running.admits("pi-01", after)


@pytest.mark.parametrize("known", [False, True], ids=["no file", "another device"])
def test_a_name_that_nobody_has_is_told_with_the_file(known, edgefl):
    Path("run.toml").write_text(RUN)
    if known:
        DeviceKeys(Path("fleet.devices")).pin("pi-02", Signer.new().key)
    code, _, why = edgefl("coordinator", "forget", "run.toml", "pi-01")
    assert (code, why) == (2, "edgefl: fleet.devices has no key of a device 'pi-01'")
    assert Path("fleet.devices").exists() is known


def test_a_run_file_that_lists_keys_is_where_to_change_them(edgefl):
    Path("run.toml").write_text(RUN + f'[devices]\npi-01 = "{Signer.new().key}"\n')
    assert edgefl("coordinator", "forget", "run.toml", "pi-01") == (
        2,
        "",
        "edgefl: run.toml lists the keys of its devices: set devices.pi-01 to the new one, or take it out",
    )


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (
            'pi-01 = "SHA256:abc"',
            'devices.pi-01 = "SHA256:abc": this is no key; `edgefl agent key agent.toml` prints it on the device',
        ),
        (
            'pi-01 = "ed25519:abc"',
            'devices.pi-01 = "ed25519:abc": this is no key; `edgefl agent key agent.toml` prints it on the device',
        ),
        ("pi-01 = 7", "devices.pi-01 = "),
        (f'"pi/01" = "{KEY}"', "devices 'pi/01' cannot stand in a topic: use up to 64 letters, digits"),
        (f'presence = "{KEY}"', "devices 'presence' cannot stand in a topic: use up to 64 letters, "),
        (f'pi.01 = "{KEY}"', "devices.pi"),
    ],
)
def test_a_wrong_list_of_devices_is_refused_in_one_line_that_names_the_key(line, why, edgefl):
    Path("run.toml").write_text(RUN + f"[devices]\n{line}\n")
    code, _, error = edgefl("coordinator", "key", "run.toml")
    assert (code, error.count("\n")) == (2, 0)
    assert error.startswith(f"edgefl: run.toml: {why}")
