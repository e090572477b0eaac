"""A device answers its operator's questions: with what it may tell, whatever else it does, and nothing else."""

from pathlib import Path

import pytest
from asked_agents import FINDINGS, Asked

from device_agent.shell.diagnosis import bounded
from device_agent.shell.examination import Examination
from device_agent.shell.service import RETRY
from device_agent.shell.setup import Diagnosed, Limits, Scope
from edgefl.base.errors import IN_THE_LOG
from edgefl.job.config.allowance import Allowance
from edgefl.system.memory_disk import MemoryDisk
from edgefl.wire.messages import LINE, MOST_LINES, REPLY, Presence, Reply, WireVitals, frame_size, read_json
from edgefl.wire.signed import opened


def test_the_doctor_s_findings_come_with_what_the_presence_says_of_the_data(tmp_path: Path) -> None:
    reply = Asked(tmp_path).answer("doctor")
    assert reply.findings[:2] == FINDINGS
    assert [(one.what, one.text) for one in reply.findings[2:]] == [
        ("broker", "connected: the question came over it"),
        ("data", "2 samples"),
    ]


def test_the_examination_does_not_hold_up_the_agent(tmp_path: Path) -> None:
    asked = Asked(tmp_path)
    asked.ask("doctor")
    assert asked.replies() == []
    asked.ask("logs")
    (reply,) = asked.replies()
    assert reply.lines == tuple(asked.lines)


def test_the_last_lines_of_the_log_are_told(tmp_path: Path) -> None:
    assert Asked(tmp_path).answer("logs").lines == ("12:00 connected", "12:01 asked")


def test_vital_signs_are_read_when_they_are_asked_for(tmp_path: Path) -> None:
    assert Asked(tmp_path).answer("vitals").vitals == WireVitals(load=0.5)


def test_an_answer_fits_into_its_bound_whatever_the_log_holds(tmp_path: Path) -> None:
    asked = Asked(tmp_path)
    asked.lines = [f"{number} " + "€" * 1000 for number in range(1000)]
    reply = asked.answer("logs")
    assert 10 < len(reply.lines) <= MOST_LINES
    assert reply.lines[-1].startswith("999 ")
    assert max(map(len, reply.lines)) == LINE
    assert frame_size(reply) <= REPLY
    assert bounded(Reply(id="a")) == Reply(id="a")


def test_what_its_operator_does_not_allow_is_refused(tmp_path: Path) -> None:
    asked = Asked(tmp_path, allow=())
    assert "remote.allow = []" in asked.answer("doctor").refused
    assert asked.examiner.puts == []


def test_an_examination_that_fails_is_told_without_its_reason(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    asked = Asked(tmp_path)
    asked.ask("doctor")
    asked.agent.handle(Diagnosed(failure="exit code 2: mineshaft"))
    (reply,) = asked.replies()
    assert reply.refused == f"the examination failed: {IN_THE_LOG}"
    assert "mineshaft" in caplog.text


def test_a_device_with_a_privacy_allowance_tells_nothing_of_how_its_machine_fares(tmp_path: Path) -> None:
    asked = Asked(tmp_path, limits=Limits(allowance=Allowance(epsilon=1.0, delta=1e-5)))
    assert "memory" not in {one.what for one in asked.answer("doctor").findings}
    assert "hides" in asked.answer("vitals").refused


def test_a_device_that_met_no_coordinator_yet_refuses(tmp_path: Path) -> None:
    asked = Asked(tmp_path, scope=Scope())
    assert "has not worked for a coordinator" in asked.answer("logs").refused
    assert asked.agent.model_cache.trust.key is None, "a question is no task: it makes nobody trusted"


def test_its_presence_says_that_it_answers(tmp_path: Path) -> None:
    announced = Asked(tmp_path).agent.outbox.announced
    assert read_json(Presence, opened(announced).payload).answers


def test_a_full_disk_does_not_hold_up_a_question(tmp_path: Path) -> None:
    asked = Asked(tmp_path, MemoryDisk())
    asked.agent.full, asked.agent.retry_at = OSError("full"), asked.clock.now() + RETRY
    assert asked.answer("logs").lines
    assert asked.answer("doctor").findings


def test_each_question_is_logged_with_who_asked_and_the_key(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    asked = Asked(tmp_path, allow=("logs",))
    asked.answer("logs")
    asked.answer("vitals")
    first, second = [one.getMessage() for one in caplog.records if one.getMessage().startswith("question")]
    assert f"what=logs by='anna on base' key={asked.signer.key}" in first
    assert first.endswith("answered")
    assert "refused: this device's operator does not allow" in second


def test_the_examination_is_the_doctor_s_in_a_process_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "pi.toml"
    file.write_text(f'[agent]\nid = "pi"\nfolder = "{tmp_path}"\n[data]\nsource = "csv:/mineshaft.csv"\n')
    diagnosed = Examination(file, ["compute.box=false"]).run()
    assert not diagnosed.failure
    assert {"clock", "memory", "disk", "box"} <= {one.what for one in diagnosed.findings}
    assert "mineshaft" not in repr(diagnosed)
    assert "exit code 1" in Examination(tmp_path / "gone.toml", []).run().failure
