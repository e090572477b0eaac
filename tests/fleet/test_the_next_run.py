"""After a run: real processes, as an operator starts them, against a real Mosquitto."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from fleets import loop

from edgefl.job.config.reader import load
from edgefl.job.config.schema import RunFile
from edgefl.wire.broker import Broker

pytestmark = [pytest.mark.timeout(400)]

RUN = """
[run]
name = "{name}"
rounds = 2
seed = 5
folder = "{folder}"
{more}
[task]
data = "synthetic"
model = "softmax"
partition = {{ kind = "dirichlet", omega = 0.5, devices = 2 }}
[algorithm]
name = "scaffold"
[broker]
url = "{broker}"
identity = "{folder}/fleet.key"
"""
EDGEFL = [sys.executable, "-m", "edgefl"]


@pytest.mark.night
def test_a_finished_run_is_left_alone_extended_and_begun_from(mosquitto: Broker, tmp_path: Path) -> None:
    def file(name: str, more: str = "") -> Path:
        path = tmp_path / f"{name}.toml"
        path.write_text(RUN.format(name=name, folder=tmp_path, more=more, broker=mosquitto.address))
        return path

    def coordinate(*words: str, devices: Path | None = None) -> subprocess.CompletedProcess[str]:
        """The command, with the agents of this run beside it."""
        fleet = subprocess.Popen([*EDGEFL, "fleet", "start", str(devices)]) if devices else None
        try:
            return subprocess.run(
                [*EDGEFL, "coordinator", *words, "--json"], capture_output=True, text=True, timeout=180, check=False
            )
        finally:
            if fleet:
                fleet.terminate()
                fleet.wait(60)

    first = file("first")
    done = coordinate("start", str(first), "--no-rehearse", devices=first)
    assert done.returncode == 0, done.stderr

    again = coordinate("start", str(first))
    assert again.returncode == 3
    assert again.stderr.startswith("edgefl: run 'first' has finished after 2 rounds and is left alone: ")
    assert again.stderr.count("\n") == 1
    assert coordinate("start", str(first), "--unless-finished").returncode == 0
    assert not (tmp_path / "first~1").exists()

    later = coordinate("extend", str(tmp_path / "first"), "--rounds", "1", "--later")
    assert later.returncode == 0, later.stderr
    assert "has 3 rounds now" in later.stderr
    extended = coordinate(
        "start", str(first), "--no-rehearse", devices=first
    )  # as a service does: the file still says 2
    assert extended.returncode == 0, extended.stderr
    last = json.loads((tmp_path / "first" / "metrics.jsonl").read_text().splitlines()[-1])
    expected = load(RunFile, first, ["run.rounds=3"])
    assert (last["event"], last["rounds"], last["model_sha256"]) == ("done", 3, loop(expected).sha256())

    second = file("second", 'from = "first"')  # by the same devices, which the coordinator knows
    done = coordinate("start", str(second), "--no-rehearse", devices=second)
    assert done.returncode == 0, done.stderr
    last = json.loads((tmp_path / "second" / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["model_sha256"] == loop(load(RunFile, second)).sha256()
