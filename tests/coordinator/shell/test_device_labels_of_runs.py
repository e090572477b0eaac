"""Where the labels of a run's devices come from: the members of its fleet, or its run file."""

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from coordinator.shell import labels
from coordinator.shell.labels import DeviceLabels
from edgefl.base.errors import ConfigError
from edgefl.fleet.administration import FleetAdministration
from edgefl.fleet.members import MembersFile
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile

BEGIN = datetime(2026, 11, 17, tzinfo=timezone.utc)


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FleetAdministration:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    opened = FleetAdministration.new("default", ["127.0.0.1"], 8883, BEGIN)
    for name in ("pi-01", "pi-02"):
        opened.add(name, BEGIN)
    opened.label(["pi-01", "pi-02"], {"site": "north"}, BEGIN)
    return opened


def run(**more: Any) -> RunFile:
    rounds = {"cohort": 1, **more.pop("rounds", {})}
    table = {"task": {"data": "digits", "model": "softmax"}, "rounds": rounds, **more}
    return parse(RunFile, table, "test", environment={})


def test_those_of_members_are_read_again_when_their_file_changes(fleet: FleetAdministration):
    source = DeviceLabels(run(fleet={"labels": {"pi-01": {"site": "attic"}}}), MembersFile(fleet.folder.members))
    before = source.now()
    assert before == {"pi-01": {"site": "north"}, "pi-02": {"site": "north"}}
    assert source.now() is before
    fleet.label(["pi-02"], {"site": "", "camera": "v2"}, BEGIN)
    assert source.now() == {"pi-01": {"site": "north"}, "pi-02": {"camera": "v2"}}
    fleet.revoke("pi-01", BEGIN)
    assert source.now() == {"pi-02": {"camera": "v2"}}


def test_a_file_that_cannot_be_read_at_this_moment_leaves_them_as_they_were(fleet: FleetAdministration):
    source = DeviceLabels(run(), MembersFile(fleet.folder.members))
    before = source.now()
    fleet.folder.members.write_text("{")
    assert source.now() == before
    fleet.folder.members.unlink()
    assert source.now() == before


def test_of_a_run_that_lists_its_devices_only_these_have_any(fleet: FleetAdministration):
    key = fleet.members.members["pi-02"].key
    source = DeviceLabels(run(devices={"pi-02": key}), MembersFile(fleet.folder.members))
    assert source.now() == {"pi-02": {"site": "north"}}


def test_without_members_they_are_those_of_the_run_file():
    own = {"device-01": {"site": "attic"}}
    assert DeviceLabels(run(fleet={"labels": own})).now() == own
    assert DeviceLabels(run()).now() == {}
    parts = {"data": "digits", "model": "softmax", "partition": {"kind": "iid", "devices": 2}}
    kinds = {"profiles": {"field": 2}, "custom": {"field": {"labels": {"owner": "ada"}}}, "labels": own}
    both = {"device-00": {"owner": "ada"}, "device-01": {"owner": "ada", "site": "attic"}}
    assert DeviceLabels(run(task=parts, fleet=kinds)).now() == both


@pytest.mark.usefixtures("fleet")
def test_a_label_that_no_member_has_is_refused_before_the_run_starts():
    here = {"url": "mqtts://127.0.0.1:8883"}
    labels.check(run(broker=here))
    labels.check(run(broker=here, rounds={"where": "site == 'nowhere' and memory_mb >= 900 and device != 'pi-01'"}))
    with pytest.raises(ConfigError, match=r"rounds\.where: no device has a label 'sit'; did you mean 'site'\?"):
        labels.check(run(broker=here, rounds={"where": "sit == 'north'"}))
