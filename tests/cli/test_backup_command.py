"""`edgefl backup` and `edgefl restore` as a person types them."""

from datetime import datetime, timezone

import pytest
from typer.testing import CliRunner

from edgefl.cli.app import app
from edgefl.fleet.administration import FleetAdministration
from edgefl.fleet.audit import AuditLog
from edgefl.server import folder as places

NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=timezone.utc)


def typed(*words, answer=None):
    return CliRunner().invoke(app, words, input=answer)


@pytest.fixture(autouse=True)
def old(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "old"))
    fleet = FleetAdministration.new("default", ["127.0.0.1"], 18883, NOW)
    for name in ("pi-01", "pi-02"):
        fleet.add(name, NOW)


def test_a_person_is_asked_who_was_revoked_since(tmp_path, monkeypatch):
    assert typed("backup", "out.tar").exit_code == 0
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "new"))
    shown = typed("restore", "out.tar", answer="pi-02\n")
    assert shown.exit_code == 0, shown.output
    for text in (
        "members of fleet 'default' at that time",
        "pi-01  added 2026-05-04",
        "Which members were revoked after",
    ):
        assert text in shown.output
    assert "revoked again: pi-02 of default" in shown.output
    assert list(FleetAdministration("default").members.active()) == ["pi-01"]
    assert [entry.what for entry in AuditLog.opened(places.folder()).entries()] == ["restore"]


def test_without_an_answer_nothing_is_restored(tmp_path, monkeypatch):
    typed("backup", "out.tar")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "new"))
    assert typed("restore", "out.tar", answer="").exit_code != 0
    assert not (tmp_path / "new" / "edgefl" / "fleets").exists()


def test_the_file_comes_before_or_after_its_options():
    typed("backup", "key", "k")
    for words in (("one.tar", "--for", "k.pub"), ("--for", "k.pub", "two.tar"), ("create", "three.tar", "--for=k.pub")):
        shown = typed("backup", *words)
        assert shown.exit_code == 0, shown.output
        assert "private keys" not in shown.output
    assert "private keys" in typed("backup", "plain.tar").output


def test_a_back_up_of_a_server_stands_in_its_audit_log():
    AuditLog.opened(places.folder())
    typed("server", "user", "add", "ann")
    typed("backup", "out.tar")
    assert [entry.what for entry in AuditLog.opened(places.folder()).entries()] == ["user.add", "backup"]
