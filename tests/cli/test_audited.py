"""Commands that change a fleet are in the audit log, whatever came of them."""

import os
import subprocess
import sys
from pathlib import Path

from edgefl.fleet.audit import AuditLog, verify


def edgefl(home: Path, *words: str) -> int:
    environment = {**os.environ, "HOME": str(home), "XDG_STATE_HOME": str(home / "state")}
    command = [str(Path(sys.executable).with_name("edgefl")), *words]
    return subprocess.run(command, cwd=home, env=environment, capture_output=True, check=False).returncode


def test_what_changes_a_fleet_is_written_down_with_its_outcome(tmp_path: Path) -> None:
    assert edgefl(tmp_path, "fleet", "init", "--devices", "pi-01", "--host", "server.local") == 0
    assert edgefl(tmp_path, "fleet", "label", "pi-01", "site=north") == 0
    assert edgefl(tmp_path, "fleet", "label", "pi-99", "site=north") == 2
    assert edgefl(tmp_path, "fleet", "list") == 0
    book = AuditLog.opened(tmp_path / "state" / "edgefl" / "server")
    told = [(entry.what, entry.subject, entry.outcome) for entry in book.entries()]
    assert told == [
        ("fleet.init", "pi-01", "done"),
        ("fleet.label", "pi-01", "done"),
        ("fleet.label", "pi-99", "refused"),
    ]
    assert verify(book.disk, book.signer.key) == ""
