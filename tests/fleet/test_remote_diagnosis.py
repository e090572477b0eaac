"""`edgefl device NAME doctor|logs|vitals` in real fleets: agents and Mosquitto as an operator starts them."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from fleets import until
from guides import ROOT, typed
from logged import logged
from secured_fleet import EDGEFL, Secured, broker, make

from device_agent import enrol
from edgefl.wire.broker import Broker

pytestmark = pytest.mark.broker
WORD = "mineshaft"  # in cells and names of the data: it may stand in the device's own log, and in no answer


def served(secured: Secured, until_done: ExitStack, name: str, text: str, *sets: str) -> Path:
    """An agent that runs, with these data; its log."""
    data = secured.state / f"{WORD}-{name}.csv"
    data.write_text(text)
    path = enrol.install(secured.kits[name], secured.state / "devices", data=f"csv:{data}")
    log = secured.state / f"{name}.log"
    words = [word for one in sets for word in ("--set", one)]
    until_done.enter_context(logged([*EDGEFL, "agent", "start", str(path), *words], log, env=secured.environment))
    return log


GUIDE = ROOT / "docs" / "guides" / "remote-diagnosis.md"
PLAIN = "1.5,2,0\n2.5,1,1\n" * 20


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with pytest.MonkeyPatch.context() as patch, ExitStack() as until_done:
        state = tmp_path_factory.mktemp("fleet")
        patch.setenv("XDG_STATE_HOME", str(state))
        fleet = make(state, "pi-05", "pi-06", "pi-07", "pi-08")
        until_done.enter_context(broker(fleet))
        logs = [
            served(fleet, until_done, "pi-05", PLAIN + f"{WORD},1,1\n"),
            served(fleet, until_done, "pi-06", PLAIN, "remote.allow=[]"),
            served(fleet, until_done, "pi-08", PLAIN),
        ]
        until(lambda: all("connected device=" in log.read_text() for log in logs))
        yield fleet


def test_the_doctor_looks_at_the_device_without_a_visit_at_the_broker_and_without_its_data(secured: Secured) -> None:
    done = secured.edgefl("device", "pi-05", "doctor", "--json")
    answer = json.loads(done.stdout)
    findings = {one["what"]: one for one in answer["findings"]}
    assert {"clock", "memory", "disk", "key", "certificate", "broker", "data"} <= set(findings)
    assert findings["data"]["level"] == "wrong"
    assert "line 41, column 1" in findings["data"]["text"]
    assert done.returncode == 1, "something is wrong"
    assert WORD not in done.stdout
    log = (secured.state / "pi-05.log").read_text()
    assert WORD in log, "the device's own log says it"
    assert "took over" not in log, "no second client came with its name"
    assert "question what=doctor" in log


def test_the_last_lines_of_its_log_are_told_without_its_data(secured: Secured) -> None:
    done = secured.edgefl("device", "pi-05", "logs")
    assert done.returncode == 0, done.stderr
    assert "connected device=pi-05" in done.stdout
    assert "question what=logs by=" in done.stdout
    assert secured.fleet.folder.signing_key.exists()
    assert WORD not in done.stdout


def test_vital_signs_are_a_small_table(secured: Secured) -> None:
    done = secured.edgefl("device", "pi-05", "vitals")
    assert done.returncode == 0, done.stderr
    titles = [line[:20].strip() for line in done.stdout.splitlines()]
    assert {"Load per processor", "Memory free", "Disk free"} <= set(titles)


def test_what_the_guide_says_can_be_typed(secured: Secured) -> None:
    played = [words for words in typed(GUIDE) if "--broker" not in words]
    assert {words[2] for words in played} == {"doctor", "logs", "vitals"}
    for words in played:
        assert words[1] == "pi-05"
        done = secured.edgefl("device", "pi-08", *words[2:])  # which no other test asks: a device does not answer all
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout


def test_what_a_device_does_not_allow_is_one_line_and_exit_code_1(secured: Secured) -> None:
    done = secured.edgefl("device", "pi-06", "logs")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [
        "edgefl: 'pi-06' refuses: this device's operator does not allow 'logs': its agent file says remote.allow = []"
    ]


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("pi-07", "logs", "--timeout", "1"), 1, "'pi-07' has not announced itself"),
        (("pi-09", "logs"), 2, "'pi-09' (did you mean 'pi-"),
        (("pi-05", "log"), 2, "did you mean 'logs'?"),
        (("pi-05", "logs", "--fleet", "other"), 2, "the key of fleet 'other' is not on this machine"),
        (("pi-05", "logs", "--broker", "mqtt://localhost"), 2, "leave it out"),
    ],
)
def test_what_cannot_be_asked_is_one_clear_line(secured: Secured, words: tuple[str, ...], code: int, text: str) -> None:
    done = secured.edgefl("device", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert text in done.stderr
    assert len(done.stderr.splitlines()) == 1


# ---- without identities ----------------------------------------------------------------------------------------------

RUN = """
[run]
name = "first"
rounds = 1
folder = "{folder}/runs"
[task]
data = "csv:{folder}/data.csv"
model = "softmax"
classes = 2
[rounds]
cohort = 1
quorum = 1
start_with = 1
[broker]
url = "{broker}"
fleet = "{fleet}"
"""
AGENT = """
[agent]
id = "pi-05"
broker = "{broker}"
fleet = "{fleet}"
folder = "{folder}/devices"
[data]
source = "csv:{folder}/data.csv"
"""


def test_in_a_fleet_without_identities_the_key_that_was_met_first_may_ask(mosquitto: Broker, tmp_path: Path) -> None:
    about = {"folder": tmp_path, "broker": mosquitto.address, "fleet": tmp_path.name.replace("_", "-")}
    (tmp_path / "data.csv").write_text(PLAIN)
    (tmp_path / "run.toml").write_text(RUN.format(**about))
    (tmp_path / "pi.toml").write_text(AGENT.format(**about))

    def edgefl(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*EDGEFL, *words], capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120)

    (words,) = (words for words in typed(GUIDE) if "--broker" in words)
    assert words[-3::2] == ["trial", "mqtt://localhost:1883"]
    ask = [*words[:-3], str(about["fleet"]), "--broker", str(mosquitto.address)]
    with logged([*EDGEFL, "agent", "start", "pi.toml"], tmp_path / "pi.log", cwd=tmp_path) as agent:
        until(lambda: "connected device=" in (tmp_path / "pi.log").read_text())
        edgefl("coordinator", "key", "run.toml")
        early = edgefl(*ask)
        assert early.returncode == 1
        assert "has not worked for a coordinator yet" in early.stderr
        assert edgefl("coordinator", "start", "run.toml", "--no-page", "--no-rehearse").returncode == 0
        done = edgefl(*ask)
        assert done.returncode == 0, done.stderr
        assert "trained round=1" in done.stdout
        agent.send_signal(signal.SIGTERM)
        agent.wait(30)
    gone = edgefl(*ask)
    assert gone.returncode == 1
    assert "'pi-05' is away" in gone.stderr
    elsewhere = edgefl(*ask[:-1], "mqtt://192.0.2.1")
    assert elsewhere.returncode == 2
    assert "its broker's own machine only" in elsewhere.stderr
