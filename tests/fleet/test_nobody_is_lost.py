"""A fleet of six of which one trains: why the others do not, and since when, is in status, fleet list and page alike.

Real processes and a real broker. Broken data end no agent: it waits, says why, and trains when they are mended.
"""

import json
import re
import subprocess
import sys
import urllib.request
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
from device_agent.durable import identity
from edgefl.fleet.authority import clock
from edgefl.wire.topics import PROTOCOL

PATIENCE = 120.0  # seconds until something is lost rather than late
NAMES = tuple(f"pi-0{number}" for number in range(1, 7))
HEALTHY, CELL, MOUNT, OTHER_KEY, OTHER_VERSION, EXPIRED = NAMES
WHY = {
    CELL: r"no usable data: .*line 32",
    MOUNT: r"no usable data: .*not there",
    OTHER_KEY: r"belongs to another key",
    OTHER_VERSION: rf"speaks protocol {PROTOCOL + 1}, the coordinator {PROTOCOL}",
    EXPIRED: r"^(cannot connect: its certificate expired on [\w ]+|its certificate has ended): `edgefl fleet add"
    rf" {EXPIRED} --replace`",
}
NEWER = (
    "import sys; sys.path.pop(0); from edgefl.wire import topics;"
    f" topics.PROTOCOL = {PROTOCOL + 1}; from edgefl.cli.entry import main; main()"
)
RUN = """
[run]
name = "six"
rounds = 1000000
[task]
data = "none"
sample = [2]
classes = 2
model = "softmax"
[algorithm]
name = "fedavg"
[rounds]
cohort = 6
quorum = 1
deadline = 2.0
[page]
port = 0
"""
ROWS = ["a,b,label", *(f"{row % 2}.5,{row % 3}.5,{row % 2}" for row in range(60))]

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]


def write(file: Path, *, broken: bool = False) -> None:
    """A table of 60 rows, one of which may have a word among its numbers, in line 32."""
    rows = list(ROWS)
    if broken:
        rows[31] = "warm,0.5,1"
    file.write_text("\n".join(rows) + "\n", encoding="utf-8")


@pytest.fixture
def six(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Secured:
    """Six members with their agent files, and what keeps five of them from training."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    secured = secured_fleet.make(tmp_path, *(name for name in NAMES if name != EXPIRED))
    secured.kits[EXPIRED] = secured.fleet.add(EXPIRED, clock() - timedelta(days=91))
    (tmp_path / "run.toml").write_text(RUN)
    for name in NAMES:
        write(tmp_path / f"{name}.csv", broken=name == CELL)
        enrol.install(secured.kits[name], tmp_path / "devices", f"csv:{tmp_path / name}.csv")
    (tmp_path / f"{MOUNT}.csv").rename(tmp_path / "mounted-later.csv")
    (tmp_path / "devices" / OTHER_KEY / identity.NAME).unlink()  # the agent makes another one
    return secured


def reasons(secured: Secured) -> dict[str, dict[str, tuple[str, Any]]]:
    """By who tells it, of every device: what is wrong with it, and since when."""
    (run,) = map(json.loads, secured.edgefl("status", "six", "--json").stdout.splitlines())
    listed = map(json.loads, secured.edgefl("fleet", "list", "--json").stdout.splitlines())
    told = {"fleet list": {row["name"]: (row["reason"], row["since"]) for row in listed}, "status": by_device(run)}
    with urllib.request.urlopen(f"{page_of(secured)}/api/overview") as page:
        told["page"] = by_device(json.load(page))
    return told


def page_of(secured: Secured) -> str:
    """The address of the run's page; "" before there is one."""
    said = re.search(r"watch it at (http://127\.0\.0\.1:\d+)", (secured.state / "coordinator.log").read_text())
    return said[1] if said else ""


def state_of(secured: Secured, device: str) -> str:
    """What the device does, by `edgefl status`."""
    (run,) = map(json.loads, secured.edgefl("status", "six", "--json").stdout.splitlines())
    return next(row["state"] for row in run["devices"] if row["name"] == device)


def by_device(overview: dict[str, Any]) -> dict[str, tuple[str, Any]]:
    return {
        row["name"]: (row["data_trouble"] or row["why"], row["data_since"] or row["since"] or row["certificate_ends"])
        for row in overview["devices"]
    }


@pytest.mark.night
def test_six_members_are_six_whatever_keeps_five_of_them_away(six: Secured) -> None:
    state = six.state
    with ExitStack() as until_done:

        def start(name: str, *command: str) -> "subprocess.Popen[bytes]":
            log = state / f"{name}.log"
            return until_done.enter_context(logged(command, log, env=six.environment, cwd=state))

        until_done.enter_context(secured_fleet.broker(six))
        start("coordinator", *EDGEFL, "coordinator", "start", "run.toml", "--no-rehearse")
        agents = {
            name: start(
                name,
                *([sys.executable, "-c", NEWER] if name == OTHER_VERSION else EDGEFL),
                *("agent", "start", str(state / "devices" / name / "agent.toml")),
            )
            for name in NAMES
        }

        def all_are_told() -> bool:
            told = reasons(six)
            return all(
                set(rows) == set(NAMES)
                and all(re.search(why, rows[name][0]) and rows[name][1] for name, why in WHY.items())
                for rows in told.values()
            )

        until(lambda: page_of(six), PATIENCE)
        try:
            until(all_are_told, PATIENCE)
        finally:
            print(json.dumps(reasons(six), indent=1))
        shown = six.edgefl("status", "six").stdout
        assert re.search(r"devices there: [1-5] of 6$", shown, re.MULTILINE), shown
        assert [agents[name].poll() for name in (HEALTHY, CELL, MOUNT)] == [None] * 3

        for name in (CELL, OTHER_VERSION):  # a power cut: only the last will tells
            agents[name].kill()
            until(lambda name=name: state_of(six, name) == "offline", PATIENCE)
        agents[CELL] = start(f"{CELL} again", *EDGEFL, "agent", "start", str(state / "devices" / CELL / "agent.toml"))
        until(lambda: state_of(six, CELL) == "no data", PATIENCE)

        write(state / f"{CELL}.csv")
        (state / "mounted-later.csv").rename(state / f"{MOUNT}.csv")

        def mended() -> bool:
            told = reasons(six)
            return not any("no usable data" in rows[name][0] for rows in told.values() for name in (CELL, MOUNT))

        until(mended, PATIENCE)
        until(lambda: answered(six) == {HEALTHY, CELL, MOUNT}, PATIENCE)


def answered(secured: Secured) -> set[str]:
    """Who has trained."""
    facts = map(json.loads, secured.edgefl("replay", "runs/six", "--json").stdout.splitlines())
    return {fact["device"] for fact in facts if fact["event"] == "answered"}
