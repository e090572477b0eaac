"""Members in a live run over a secured Mosquitto, in real processes: certificates renew themselves, and who is revoked
is out although its connection is open.
"""

import json
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import secured_fleet
from fleets import until
from logged import logged
from secured_fleet import EDGEFL, Secured

from device_agent import enrol
from edgefl.fleet import last_seen
from edgefl.fleet.authority import clock, read_certificate

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0  # seconds until something is lost rather than late
OUT = 5.0  # seconds after the command in which it may still have been heard
NAMES = "pi-01", "pi-02", "pi-03"
RUN = """
[run]
name = "long"
rounds = 1000000
[task]
data = "digits"
model = "softmax"
partition = { kind = "iid", devices = 3 }
[algorithm]
name = "fedavg"
batches = 2
[rounds]
cohort = 3
quorum = 2
deadline = 5.0
"""

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]


class Living:
    """A secured fleet of three that trains, and what its metrics say."""

    def __init__(self, secured: Secured, processes: Sequence[subprocess.Popen[bytes]]) -> None:
        self.secured, self.processes = secured, processes

    def until(self, true: Callable[[], object]) -> None:
        """Wait for what comes as long as nobody has died."""

        def holds() -> object:
            assert [process.poll() for process in self.processes] == [None] * len(self.processes)
            return true()

        until(holds, PATIENCE)

    def facts(self, kind: str) -> list[dict[str, Any]]:
        """What has been written down of this kind."""
        done = self.secured.edgefl("replay", "runs/long", "--json")
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        return [one for one in lines if one["event"] == kind]

    def rounds(self) -> int:
        file = self.secured.state / "runs" / "long" / "metrics.jsonl"
        return len(file.read_text().splitlines()) if file.exists() else 0


@pytest.fixture
def living(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Living]:
    """pi-01 has had its certificate for 70 of its 90 days."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    secured = secured_fleet.make(tmp_path, *NAMES[1:])
    secured.kits["pi-01"] = secured.fleet.add("pi-01", clock() - timedelta(days=70))
    (tmp_path / "run.toml").write_text(RUN)
    agents = [str(enrol.install(secured.kits[name], tmp_path / "devices", "digits")) for name in NAMES]
    with ExitStack() as until_done:
        until_done.enter_context(secured_fleet.broker(secured))
        commands = [["coordinator", "start", "run.toml", "--no-rehearse"], *(["agent", "start", one] for one in agents)]
        running: list[subprocess.Popen[bytes]] = []
        for name, words in zip(("coordinator", *NAMES), commands, strict=True):
            command, log = [*EDGEFL, *words], tmp_path / f"{name}.log"
            running.append(until_done.enter_context(logged(command, log, env=secured.environment, cwd=tmp_path)))
        yield Living(secured, running)


@pytest.mark.night
def test_a_certificate_that_ends_soon_is_renewed_and_a_revoked_device_is_out(living: Living) -> None:
    secured = living.secured
    file = secured.state / "devices" / "pi-01" / enrol.TLS
    before = read_certificate(file.read_bytes())
    living.until(lambda: living.rounds() >= 2)
    living.until(lambda: read_certificate(file.read_bytes()).not_valid_after_utc > before.not_valid_after_utc)
    after = read_certificate(file.read_bytes())
    assert after.public_key() != before.public_key(), "a new key, which never left the device"
    member = secured.fleet.members.active()["pi-01"]
    assert member.expires == after.not_valid_after_utc
    assert [one["device"] for one in living.facts("certified")] == ["pi-01"]
    listed = secured.edgefl("fleet", "list").stdout
    assert not re.search("pi-0[123].*never", listed), listed

    done = secured.edgefl("fleet", "revoke", "pi-02")
    at, since = clock().timestamp(), living.rounds()
    assert done.returncode == 0, done.stderr
    living.until(lambda: living.rounds() >= since + 3 and clock().timestamp() > at + OUT + 2)
    assert [one for one in living.facts("lost") if one["device"] == "pi-02"]
    assert not [one for one in living.facts("answered") if one["device"] == "pi-02" and one["at"] > at + OUT]
    asked = [one for one in living.facts("asked") if one["at"] > at + OUT]
    assert asked
    assert not [one for one in asked if "pi-02" in one["devices"]]
    assert set(last_seen.read(secured.fleet.folder.seen)) == set(NAMES)
