"""The API keeps what its document promises, whatever is sent: schemathesis makes requests up from the document."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from served import served

pytestmark = pytest.mark.night

PROGRAM = Path(__file__).parents[3] / "build" / "schemathesis" / "bin" / "schemathesis"
EXCLUDED = "allow_header_conformance"  # a path with two methods names one of them in `Allow`: that is the framework's


def test_no_request_breaks_what_the_document_promises(tmp_path, monkeypatch):
    program = shutil.which("schemathesis") or (str(PROGRAM) if PROGRAM.exists() else None)
    if program is None:
        pytest.skip("schemathesis is not installed: make -f scripts/Makefile schemathesis")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "server"
    folder.mkdir(mode=0o700)
    with served(folder) as (_, people):
        admin = people["admin"]
        done = subprocess.run(
            [
                *(program, "run", f"{admin.url}/openapi.json", "--header", f"Authorization: Bearer {admin.token}"),
                *("--max-examples", "30", "--seed", "1", "--exclude-checks", EXCLUDED, "--request-timeout", "30"),
            ],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env={**os.environ, "COLUMNS": "120"},
        )
    assert done.returncode == 0, done.stdout[-6000:]
