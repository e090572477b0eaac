"""One key for a fleet: made once, the same for all its runs, read by nobody else."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from coordinator.durable import identity
from edgefl.base.errors import ConfigError
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.system.faults import FAULT
from edgefl.wire import signing


def run(name: str = "one", environment: dict[str, str] | None = None, **broker: str) -> RunFile:
    table = {"run": {"name": name}, "rounds": {"cohort": 1}, "broker": {"url": "mqtt://localhost:1883", **broker}}
    return parse(RunFile, table, "run.toml", environment=environment or {})


def test_all_runs_of_a_fleet_are_signed_by_one_key_and_another_fleet_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    first = identity.signer(run("one")).key
    assert identity.signer(run("two")).key == first
    assert identity.signer(run("one", fleet="barn")).key != first
    assert (tmp_path / "edgefl" / "fleets" / "barn.key").exists()


def test_without_a_word_it_is_in_the_operators_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert identity.path(run()) == tmp_path / ".local/state/edgefl/fleets/default.key"


def test_file_and_environment_may_name_another_place(tmp_path: Path):
    assert identity.path(run(identity=str(tmp_path / "a.key"))) == tmp_path / "a.key"
    environment = {"EDGEFL_BROKER__IDENTITY": str(tmp_path / "b.key")}
    assert identity.path(run(environment=environment, identity="a.key")) == tmp_path / "b.key"


def test_a_broker_of_ones_own_has_a_fleet_that_ends_with_the_run():
    assert identity.path(run(url="embedded")) == Path("runs/one/identity.key")


def test_only_its_owner_may_read_it_and_nothing_else_is_left(tmp_path: Path):
    file = tmp_path / "new" / "fleet.key"
    identity.opened(file)
    assert [(path.name, path.stat().st_mode & 0o777) for path in file.parent.iterdir()] == [("fleet.key", 0o600)]


def test_a_key_that_others_can_read_is_refused(tmp_path: Path):
    identity.opened(tmp_path / "fleet.key")
    (tmp_path / "fleet.key").chmod(0o644)
    with pytest.raises(ConfigError, match=r"fleet\.key can be read by others \(mode 644\): chmod 600 .*fleet\.key$"):
        identity.opened(tmp_path / "fleet.key")


def test_a_key_that_openssl_made_will_do_and_one_of_another_kind_will_not(tmp_path: Path):
    for kind, name in (("ed25519", "good.key"), ("x25519", "other.key")):
        command = ["openssl", "genpkey", "-algorithm", kind, "-out", str(tmp_path / name)]
        subprocess.run(command, check=True, capture_output=True)
        (tmp_path / name).chmod(0o600)
    signing.claim(identity.opened(tmp_path / "good.key").sign(b"{}")).prove()
    with pytest.raises(ConfigError, match=r"other\.key is not an Ed25519 key in PEM without a password: restore it"):
        identity.opened(tmp_path / "other.key")


@pytest.mark.parametrize(
    "content", [b"", b"garbage", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"]
)
def test_a_damaged_key_is_refused_and_never_replaced(content: bytes, tmp_path: Path):
    file = tmp_path / "fleet.key"
    file.touch(mode=0o600)
    file.write_bytes(content)
    with pytest.raises(ConfigError, match="restore it, or delete it and give agents the new one"):
        identity.opened(file)
    assert file.read_bytes() == content


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"file/fleet\.key cannot be read or made \(File exists\): set broker\.id"):
        identity.opened(tmp_path / "file" / "fleet.key")


@pytest.mark.parametrize("fault", ["kill:1", "full:1"])
def test_a_start_that_was_cut_short_leaves_nothing_that_the_next_one_could_trip_over(fault: str, tmp_path: Path):
    file = tmp_path / "fleet.key"
    code = f"from pathlib import Path; from coordinator.durable import identity; identity.opened(Path({str(file)!r}))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, check=False, env={**os.environ, FAULT: fault}, capture_output=True, text=True)
    assert done.returncode != 0
    assert fault == "kill:1" or "StoreError" in done.stderr
    assert list(tmp_path.iterdir()) == []
    identity.opened(file)


def test_many_who_start_at_the_same_moment_have_the_same_key(tmp_path: Path):
    keys, together = [], threading.Barrier(8)

    def start() -> None:
        together.wait()
        keys.append(identity.opened(tmp_path / "fleet.key").key)

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(keys), len(set(keys))) == (8, 1)
