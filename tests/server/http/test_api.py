"""The API of a server: who may what, what becomes of it, and that each change is written down."""

from datetime import datetime, timezone
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest
from served import Client, new_run, served

from edgefl.fleet.administration import FleetAdministration
from edgefl.fleet.audit import verify


@pytest.fixture
def api(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "server"
    folder.mkdir(mode=0o700)
    with served(folder) as running:
        yield running


def test_a_run_is_submitted_shown_paused_and_resumed(api):
    around, people = api
    assert people["operator"]("POST", "/api/v1/runs", new_run()) == (201, {"name": "a", "kind": "run"})
    status, run = people["viewer"]("GET", "/api/v1/runs/a")
    assert (status, run["phase"], run["fleet"], run["by"]) == (200, "working", "north", "operator")
    assert people["operator"]("POST", "/api/v1/runs/a/pause")[0] == 204
    assert around.machine.coordinators.stopping == ["a"]
    around.machine.coordinators.end("a", 130)
    around.machine.pass_time(1)
    assert people["viewer"]("GET", "/api/v1/runs/a")[1]["phase"] == "paused"
    assert people["operator"]("POST", "/api/v1/runs/a/resume")[0] == 204
    assert people["operator"]("POST", "/api/v1/runs/a/cancel")[0] == 204


def test_the_same_request_queues_one_run(api):
    around, people = api
    for _ in range(2):
        assert people["operator"]("POST", "/api/v1/runs", new_run())[0] == 201
    assert around.machine.coordinators.started == ["a"]


def test_a_schedule_is_set_and_listed(api):
    _, people = api
    night = new_run("night", more='[schedule]\ncron = "0 2 * * *"\nzone = "UTC"\nwhen = "new_samples >= 500"\n')
    assert people["operator"]("POST", "/api/v1/runs", night) == (201, {"name": "night", "kind": "schedule"})
    (schedule,) = people["viewer"]("GET", "/api/v1/schedules")[1]
    assert (schedule["cron"], schedule["when"], schedule["runs"]) == ("0 2 * * *", "new_samples >= 500", 0)
    assert "T02:00:00" in schedule["next_due"]


@pytest.mark.parametrize("who", ["nobody", "viewer"])
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/api/v1/runs", new_run()),
        ("POST", "/api/v1/runs/a/cancel", None),
        ("PUT", "/api/v1/runs/a/priority", {"priority": 1}),
        ("POST", "/api/v1/prune", {"keep": 0}),
    ],
)
def test_who_may_only_see_changes_nothing(api, who, method, path, body):
    around, people = api
    people["operator"]("POST", "/api/v1/runs", new_run(request="first"))
    before = around.machine.server.state
    assert people[who](method, path, body)[0] == (401 if who == "nobody" else 403)
    assert around.machine.server.state is before


def test_without_a_token_nothing_is_told(api):
    _, people = api
    for path in ("/api/v1/runs", "/api/v1/fleets", "/api/v1/audit", "/openapi.json", "/api/v1/nothing"):
        assert people["nobody"]("GET", path)[0] == 401


def test_folders_and_the_audit_log_are_for_admins(api):
    _, people = api
    assert people["operator"]("POST", "/api/v1/prune", {"keep": 0})[0] == 403
    assert people["operator"]("GET", "/api/v1/audit")[0] == 403
    assert people["operator"]("POST", "/api/v1/runs", new_run(beside="/etc"))[0] == 403
    assert people["admin"]("POST", "/api/v1/prune", {"keep": 0}) == (200, {"deleted": []})


@pytest.mark.parametrize(
    "about",
    [
        {"more": '[task]\nmodel = "os:system"\n'},
        {"sets": ["task.model=os:system"]},
        {"sets": ["algorithm.name=evil:Attack"]},
        {"more": '[wire]\ncodec = "evil:Codec"\n'},
    ],
)
def test_an_operator_names_no_code(api, about):
    around, people = api
    status, answer = people["operator"]("POST", "/api/v1/runs", new_run(**about))
    assert (status, around.machine.coordinators.started) == (409, [])
    assert "is code" in answer["error"]


def test_a_fleet_of_others_is_not_there(api):
    _, people = api
    people["admin"]("POST", "/api/v1/runs", new_run("theirs", "south", "r1"))
    northern = people["northern"]
    assert northern("GET", "/api/v1/runs") == (200, [])
    assert northern("GET", "/api/v1/runs/theirs")[0] == 404
    assert northern("POST", "/api/v1/runs/theirs/cancel")[0] == 404
    assert northern("GET", "/api/v1/runs/theirs/log")[0] == 404
    assert northern("POST", "/api/v1/runs", new_run("b", "south", "r2"))[0] == 404
    assert [fleet["name"] for fleet in northern("GET", "/api/v1/fleets")[1]] == ["north"]
    assert northern("GET", "/api/v1/fleets/south/devices")[0] == 404
    assert northern("GET", "/api/v1/fleets/north/devices")[0] == 200


def test_each_change_is_in_the_audit_log_refusals_too(api):
    around, people = api
    people["operator"]("POST", "/api/v1/runs", new_run())
    people["operator"]("POST", "/api/v1/runs/x/cancel")
    lines = people["admin"]("GET", "/api/v1/audit")[1]
    assert lines["fault"] == "" == verify(around.audit.disk, around.audit.signer.key)
    told = [(line["who"], line["what"], line["fleet"], line["subject"], line["outcome"]) for line in lines["entries"]]
    assert ("operator", "run.submit", "north", "a", "done") in told
    assert ("operator", "run.cancel", "", "x", "refused") in told


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        ({"run_file": "[run", "request": "r"}, 409, "TOML"),
        ({"run_file": "[run]\nnme = 'a'", "request": "r"}, 409, "nme"),
        ({"run_file": "", "request": ""}, 422, "request"),
        ({"request": "r"}, 422, "run_file"),
        ({"run_file": "", "request": "r", "who": "root"}, 422, "who"),
        (b"{", 422, ""),
        (new_run(fleet="west"), 409, "west"),
        (new_run(name="a/b"), 409, "run.name"),
    ],
)
def test_what_is_wrong_with_a_request_is_said(api, body, status, word):
    _, people = api
    answer = people["admin"]("POST", "/api/v1/runs", body)
    assert answer[0] == status
    assert word in answer[1]["error"]


def test_another_web_page_cannot_make_a_browser_change_anything(api):
    around, people = api
    headers = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    assert people["admin"]("POST", "/api/v1/runs", new_run(), **headers)[0] == 403
    assert around.machine.coordinators.started == []


def test_a_request_without_an_end_or_of_no_size_is_refused(api):
    _, people = api
    for size in ({"Content-Length": str(3 << 20)}, {"Transfer-Encoding": "chunked"}):
        line = HTTPConnection(urlsplit(people["admin"].url).netloc, timeout=30)
        line.putrequest("POST", "/api/v1/runs")
        for name, value in {"Authorization": f"Bearer {people['admin'].token}", **size}.items():
            line.putheader(name, value)
        line.endheaders()
        assert line.getresponse().status == 413
        line.close()


def test_the_log_of_a_run_ends_with_its_last_lines(api):
    around, people = api
    people["operator"]("POST", "/api/v1/runs", new_run())
    around.log_of("a").write_text("".join(f"line {number}\n" for number in range(500)))
    lines = people["viewer"]("GET", "/api/v1/runs/a/log?lines=2")[1]["lines"]
    assert lines == ["line 498", "line 499"]
    assert people["viewer"]("GET", "/api/v1/runs/%2e%2e%2fpeople/log")[0] in (404, 422)


def test_a_full_disk_is_not_the_caller_s_fault(api):
    around, people = api
    around.machine.disk.capacity = around.machine.disk.used
    assert people["operator"]("POST", "/api/v1/runs", new_run())[0] == 503


def test_the_document_describes_every_path_and_every_error(api):
    _, people = api
    document = people["viewer"]("GET", "/openapi.json")[1]
    assert "/api/v1/runs/{name}/pause" in document["paths"]
    for path, methods in document["paths"].items():
        for method, about in methods.items():
            assert about["summary"], (path, method)
            assert {"401", "403"} <= set(about["responses"]), (path, method)


def test_a_browser_logs_in_with_its_token_and_sees_what_its_role_sees(api):
    _, people = api
    viewer = people["viewer"]
    anonymous = Client(viewer.url, "")
    assert (
        anonymous("POST", "/login", b"token=wrong", **{"Content-Type": "application/x-www-form-urlencoded"})[0] == 200
    )
    cookie = api[0].people.cookie(viewer.token)
    assert anonymous("GET", "/api/v1/runs", Cookie=f"edgefl_server={cookie}") == (200, [])
    assert anonymous("POST", "/api/v1/runs", new_run(), Cookie=f"edgefl_server={cookie}")[0] == 403


def test_an_operator_labels_a_device_and_asks_it_how_it_is(api):
    _, people = api
    fleet = FleetAdministration("north")
    fleet.add("pi-01", datetime.now(timezone.utc))
    path = "/api/v1/fleets/north/devices/pi-01"
    assert people["viewer"]("PUT", f"{path}/labels", {"labels": {"site": "a"}})[0] == 403
    assert people["northern"]("PUT", f"{path}/labels", {"labels": {"site": "a"}}) == (200, {"labels": {"site": "a"}})
    assert fleet.members.members["pi-01"].labels == {"site": "a"}
    assert people["operator"]("PUT", f"{path}/labels", {"labels": {"arch": "x"}})[0] == 409
    assert people["northern"]("PUT", "/api/v1/fleets/south/devices/pi-01/labels", {"labels": {}})[0] == 404
    assert people["viewer"]("POST", f"{path}/ask/doctor")[0] == 403
    assert people["operator"]("POST", f"{path}/ask/passwords")[0] == 422
    status, answer = people["operator"]("POST", f"{path}/ask/doctor")
    assert (status, bool(answer["error"])) == (409, True), "there is no broker in this test"
