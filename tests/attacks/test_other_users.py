"""Another user of the same machine: links in the way of what is written, and files opened before they are closed."""

import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from secured_fleet import broker, make

from edgefl.fleet import revocation
from edgefl.system import store
from edgefl.wire.broker import NOBODY

NOGROUP = 65534


def as_nobody(*command: str) -> None:
    """Try it; whether it could be done is seen by what comes of it."""
    subprocess.run(command, user=NOBODY, group=NOGROUP, extra_groups=[], cwd="/", capture_output=True, check=False)


@pytest.mark.broker
@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs its broker as another user")
def test_the_brokers_user_cannot_lead_roots_writing_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    secured = make(tmp_path, "pi-1")
    precious = tmp_path / "precious"
    precious.write_text("root's own")
    with broker(secured):
        homes = Path(tempfile.gettempdir()).glob("edgefl-broker-*/mosquitto.conf")
        (home,) = (conf.parent for conf in homes if f"listener {secured.port} " in conf.read_text())
        as_nobody("ln", "-s", str(precious), str(home / ".acl.new"))
        as_nobody("mv", str(home), f"{home}.moved")
        assert revocation.revoke(secured.fleet, "pi-1") == "out"  # the broker reads its files again
    assert precious.read_text() == "root's own"
    assert precious.stat().st_uid == 0


def test_a_private_file_is_private_before_anything_is_written_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who opens it before it is closed reads on: so the mode is given with the name, and not afterwards."""
    monkeypatch.setattr(os, "fchmod", lambda *_: None)
    before = os.umask(0)
    try:
        store.write_atomically(tmp_path / "pi-1.kit", b"keys")
        store.write_atomically(tmp_path / "report", b"for all", private=False)
    finally:
        os.umask(before)
    assert (tmp_path / "pi-1.kit").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "report").stat().st_mode & 0o777 == 0o666
