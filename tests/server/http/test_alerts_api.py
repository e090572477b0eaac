"""What needs a person, over the API, on the command line's way to it, and for Prometheus."""

import json

import pytest
from prometheus_client.parser import text_string_to_metric_families
from served import served
from typer.testing import CliRunner

from edgefl.base import events
from edgefl.cli.app import app
from edgefl.server.decide.alerts import AlertRules, AlertState, AlertsTicked, DeviceFact, step
from edgefl.server.durable.rows import RowStore
from edgefl.server.http import alert_metrics
from edgefl.server.shell.alerts import AlertEquipment, AlertService, Looked

HOUR = 3600.0


class NoBackground:
    """Nothing is read and nothing is sent."""

    def start(self, work): ...

    def cancel(self): ...

    def close(self): ...


@pytest.fixture
def api(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "server"
    folder.mkdir(mode=0o700)
    with served(folder) as (around, people):
        server = around.machine.server
        equipment = AlertEquipment(AlertRules(), {}, NoBackground(), {}, lambda _: Looked((), None))
        server.alerts = AlertService(equipment, RowStore(server.around.disk), server.clock, ("north", "south"))
        server.alerts.state = opened(("north", "d1"), ("south", "d2"))
        yield around, people


def opened(*devices):
    state = AlertState()
    for fleet, device in devices:
        state = step(state, DeviceFact(0.0, fleet, events.Lost(device, "its connection broke")), AlertRules())
    return step(state, AlertsTicked(HOUR), AlertRules())


def test_a_viewer_sees_what_is_wrong_and_what_to_do(api):
    _, people = api
    status, alerts = people["viewer"]("GET", "/api/v1/alerts")
    assert (status, [alert["subject"] for alert in alerts]) == (200, ["d1", "d2"])
    first = alerts[0]
    assert (first["kind"], first["fleet"], first["quieted_by"]) == ("away", "north", "")
    assert (first["since"], first["told"]) == ("1970-01-01T00:00:00Z", "1970-01-01T01:00:00Z")
    assert first["text"].startswith("d1 has been away for ")
    assert "edgefl fleet revoke d1" in first["remedy"]


def test_alerts_of_another_fleet_are_not_there(api):
    _, people = api
    (alert,) = people["northern"]("GET", "/api/v1/alerts")[1]
    assert alert["subject"] == "d1"
    other = next(one for one in people["viewer"]("GET", "/api/v1/alerts")[1] if one["subject"] == "d2")
    assert people["northern"]("POST", f"/api/v1/alerts/{other['id']}/quiet")[0] == 404


def test_an_operator_quiets_an_alert_and_the_audit_log_tells_it(api):
    around, people = api
    alert = people["viewer"]("GET", "/api/v1/alerts")[1][0]
    assert people["viewer"]("POST", f"/api/v1/alerts/{alert['id']}/quiet")[0] == 403
    assert people["operator"]("POST", f"/api/v1/alerts/{alert['id']}/quiet")[0] == 204
    assert people["viewer"]("GET", "/api/v1/alerts")[1][0]["quieted_by"] == "operator"
    entry = list(around.audit.entries())[-1]
    assert (entry.who, entry.what, entry.subject, entry.fleet) == ("operator", "alert.quiet", "away d1", "north")
    assert people["operator"]("POST", f"/api/v1/alerts/{'0' * 24}/quiet")[0] == 404
    assert people["operator"]("POST", "/api/v1/alerts/x/quiet")[0] == 422


def test_the_servers_metrics_have_the_alerts_of_the_fleets_of_who_asks(api):
    _, people = api
    text = people["northern"]("GET", "/metrics")[1].decode()
    assert 'edgefl_alerts_open{fleet="north",kind="away"} 1.0' in text
    assert "south" not in text


def test_commands_show_and_quiet_alerts(api, monkeypatch):
    _, people = api
    monkeypatch.setenv("EDGEFL_TOKEN", people["operator"].token)
    url = people["operator"].url
    shown = CliRunner().invoke(app, ["server", "alerts", "--server", url]).stdout
    assert "north: d1 has been away for" in shown
    assert "edgefl fleet revoke d1" in shown
    lines = CliRunner().invoke(app, ["server", "alerts", "--json", "--server", url]).stdout.splitlines()
    ids = {one["subject"]: one["id"] for one in map(json.loads, lines)}
    assert CliRunner().invoke(app, ["server", "quiet", ids["d1"], "--server", url]).exit_code == 0
    assert "(known to operator)" in CliRunner().invoke(app, ["server", "alerts", "--server", url]).stdout


def test_prometheus_reads_how_many_alerts_of_each_kind_are_open():
    told = alert_metrics.text(opened(("north", "d1"), ("north", "d3"), ("south", "d2")), ("north", "south"))
    families = {family.name: family for family in text_string_to_metric_families(told)}
    counts = {
        (sample.labels["fleet"], sample.labels["kind"]): sample.value
        for sample in families["edgefl_alerts_open"].samples
    }
    assert (counts["north", "away"], counts["south", "away"]) == (2, 1)
    assert (counts["north", "stalled"], counts["", "disk"]) == (0, 0)
    assert {sample.value for sample in families["edgefl_alerts_undelivered"].samples} == {0}


def test_kinds_that_are_off_have_no_series():
    told = alert_metrics.text(AlertState(), ("north",), frozenset({"away"}))
    assert 'kind="away"' not in told
    assert 'kind="stale"' in told
