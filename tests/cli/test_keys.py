"""The key that an operator copies from the server to a device, by the commands that are used for it."""

import sys
from pathlib import Path

import pytest

from edgefl.cli.app import main
from edgefl.protocol import signing

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
        said = capsys.readouterr()
        return int(end.value.code or 0), said.out.strip(), said.err.strip()

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
