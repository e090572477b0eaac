"""The page of a fleet and what it asks for: over real HTTP, for people whose fleet it is."""

import asyncio
import json
from pathlib import Path

import pytest
from invented_fleet import devices, runs, write_rounds, written_run
from served import served

from edgefl.base import events
from edgefl.server.http import run_pages
from edgefl.server.http.run_pages import RunPages, TooMany

parser = pytest.importorskip("prometheus_client.parser", reason="needs prometheus-client, of the extra 'dev'")
ASKED = (
    "/me",
    "/fleets/north/events",
    "/fleets/north/queue",
    "/fleets/north/device/pi-0001",
    "/metrics",
    "/runs/a/api/overview",
)
STATIC = Path("edgefl/server/http/static")


@pytest.fixture
def fleet(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "server"
    folder.mkdir(mode=0o700)
    with served(folder) as running:
        yield running


def events_of(answer):
    """Server-sent events, as they come: name and data."""
    name = "message"
    while line := answer.readline().decode():
        key, _, value = line.rstrip("\n").partition(": ")
        if key == "event":
            name = value
        elif key == "data":
            yield name, json.loads(value)
            name = "message"


def test_the_page_and_its_files_are_served_under_a_strict_policy(fleet):
    _, people = fleet
    for path in ("/", "/static/server/main.js", "/static/server/fleet.css", "/static/table.js"):
        answer = people["viewer"].ask(path)
        assert answer.status == 200, path
        policy = answer.headers["Content-Security-Policy"]
        assert "script-src 'self'" in policy
        assert "require-trusted-types-for 'script'" in policy
        assert "unsafe" not in policy
    assert people["viewer"].ask("/static/server/../fleet_pages.py").status == 404


def test_no_script_or_style_stands_in_the_page_itself(fleet):
    _, people = fleet
    text = people["viewer"].ask("/").read().decode()
    assert "style=" not in text
    assert " on" + "click" not in text
    assert all(" src=" in tag for tag in text.split("<script")[1:])


@pytest.mark.parametrize("path", ASKED)
def test_without_a_token_nothing_is_told(fleet, path):
    _, people = fleet
    assert people["nobody"].ask(path).status == 401


@pytest.mark.parametrize("path", ["/", "/runs/a/"])
def test_a_browser_without_a_token_is_led_to_the_form(fleet, path):
    _, people = fleet
    answer = people["nobody"].ask(path)
    assert (answer.status, answer.headers["Location"]) == (303, "/login")


def test_who_asks_is_told_their_role_and_their_fleets(fleet):
    _, people = fleet
    assert people["viewer"]("GET", "/me")[1]["fleets"] == ["north", "south"]
    me = people["northern"]("GET", "/me")[1]
    assert (me["name"], me["role"], me["fleets"]) == ("northern", "operator", ["north"])


@pytest.mark.parametrize("what", ["events", "queue", "device/pi-0001"])
def test_a_fleet_of_others_is_not_there(fleet, what):
    around, people = fleet
    for fact in devices(3):
        around.feeds["south"].tell(fact)
    theirs, unknown = (
        people["northern"].ask(f"/fleets/south/{what}"),
        people["northern"].ask(f"/fleets/nothing/{what}"),
    )
    assert theirs.status == unknown.status == 404
    assert theirs.read().replace(b"south", b"X") == unknown.read().replace(b"nothing", b"X")


def test_the_stream_tells_queue_and_devices_and_then_what_changes(fleet):
    around, people = fleet
    for fact in devices(5):
        around.feeds["north"].tell(fact)
    told = events_of(people["viewer"].ask("/fleets/north/events"))
    name, queue = next(told)
    assert (name, queue["runs"]) == ("queue", [])
    name, everything = next(told)
    assert (name, everything["whole"], len(everything["devices"])) == ("message", True, 5)
    around.feeds["north"].tell(events.Lost("pi-0002", "its battery is empty", at=2e9))
    name, changes = next(told)
    assert [row["name"] for row in changes["devices"]] == ["pi-0002"]
    runs(around, 14)
    name, queue = next(told)
    assert (name, len(queue["runs"]), queue["at_once"]) == ("queue", 14, 2)


def test_a_stream_ends_when_its_reader_may_not_see_the_fleet_any_more(fleet):
    around, people = fleet
    told = events_of(people["northern"].ask("/fleets/north/events"))
    assert [next(told)[0], next(told)[0]] == ["queue", "message"]
    around.people.remove("northern")
    around.queue.changed()
    assert next(told) == ("end", {})


def test_the_queue_has_positions_progress_and_the_next_time_of_schedules(fleet):
    around, people = fleet
    runs(around, 30)
    queue = people["viewer"]("GET", "/fleets/north/queue")[1]
    waiting = sorted((run["position"], run["priority"]) for run in queue["runs"] if run["position"])
    assert [position for position, _ in waiting] == list(range(1, 8))
    assert [priority for _, priority in waiting] == sorted((priority for _, priority in waiting), reverse=True)
    working = [run["progress"] for run in queue["runs"] if run["phase"] == "working"]
    assert [(one["round"], one["rounds"], one["measure"]) for one in working] == [
        (42, 60, "accuracy"),
        (43, 60, "accuracy"),
    ]
    schedules = {one["name"]: one["next_due"] for one in queue["schedules"]}
    assert schedules["night"] is not None
    assert schedules["weekly"] is None  # it is paused


def test_the_queue_of_a_fleet_says_nothing_of_another(fleet):
    around, people = fleet
    runs(around, 14, "south")
    queue = people["northern"]("GET", "/fleets/north/queue")[1]
    assert (queue["runs"], queue["schedules"], queue["ended"]) == ([], [], 0)


def test_of_runs_that_ended_the_last_ones_are_told(fleet):
    around, people = fleet
    runs(around, 90)
    queue = people["viewer"]("GET", "/fleets/north/queue")[1]
    ended = [run["ended"] for run in queue["runs"] if run["ended"]]
    assert (len(ended), queue["ended"]) == (40, 80)
    assert ended == sorted(ended, reverse=True)


def test_a_run_in_the_queue_has_its_place_there_for_a_page(fleet):
    around, people = fleet
    runs(around, 14)
    answer = people["viewer"].ask("/runs/sensors-2/")
    assert (answer.status, answer.headers["Location"]) == (303, "/#north/runs/sensors-2")
    assert people["viewer"].ask("/runs/sensors-2/api/overview").status == 404


def test_a_run_has_its_page_from_its_folder(fleet):
    around, people = fleet
    runs(around, 14)
    written_run(around.folder / "runs" / "sensors-1")
    page = people["viewer"].ask("/runs/sensors-1/")
    assert (page.status, b'id="now-title"' in page.read()) == (200, True)
    overview = people["northern"]("GET", "/runs/sensors-1/api/overview")[1]
    assert overview["rounds"]
    assert people["viewer"].ask("/runs/sensors-1/metrics").status == 200
    assert people["viewer"].ask("/runs/sensors-1/", "POST").status == 405


def test_the_page_of_a_run_of_another_fleet_is_not_there(fleet):
    around, people = fleet
    runs(around, 14, "south")
    written_run(around.folder / "runs" / "sensors-1")
    assert people["viewer"]("GET", "/runs/sensors-1/api/overview")[0] == 200
    assert people["northern"]("GET", "/runs/sensors-1/api/overview")[0] == 404
    assert people["northern"]("GET", "/runs/sensors-1/")[0] == 404


def test_beside_a_run_only_runs_of_its_fleet_are_listed(fleet):
    around, people = fleet
    runs(around, 14)
    folder = around.folder / "runs"
    written_run(folder / "sensors-1")
    write_rounds(folder / "sensors-2", 2)
    write_rounds(folder / "of-another-fleet", 2)
    listed = people["northern"]("GET", "/runs/sensors-1/api/runs")[1]["runs"]
    assert {run["name"] for run in listed} >= {"sensors-2"}
    assert "of-another-fleet" not in {run["name"] for run in listed}
    assert people["northern"]("GET", "/runs/sensors-1/api/runs/sensors-2")[0] == 200
    assert people["northern"]("GET", "/runs/sensors-1/api/runs/of-another-fleet")[0] == 404


def test_pages_of_runs_are_bounded_and_the_oldest_unwatched_one_gives_way(tmp_path, monkeypatch):
    monkeypatch.setattr(run_pages, "MOST", 2)
    folders = [tmp_path / name for name in ("a", "b", "c", "d")]
    for folder in folders:
        written_run(folder)

    async def look() -> None:
        pages = RunPages()
        try:
            for folder in folders[:3]:
                assert await pages.page(folder, set) is not None
            assert list(pages._open) == folders[1:3]
            for folder in folders[1:3]:
                assert pages._open[folder].source.feed.listen() is not None
            with pytest.raises(TooMany):
                await pages.page(folders[3], set)
        finally:
            pages.close()

    asyncio.run(look())


def test_a_page_that_nobody_looks_at_is_closed(tmp_path, monkeypatch):
    monkeypatch.setattr(run_pages, "IDLE", 0.0)
    folder = tmp_path / "a"
    written_run(folder)

    async def look() -> None:
        pages = RunPages()
        await pages.page(folder, set)
        source = pages._open[folder].source
        listener = source.feed.listen()
        pages._sweep()
        assert list(pages._open) == [folder]  # it is watched
        source.feed.leave(listener)
        pages._sweep()
        assert list(pages._open) == []
        while not source.feed.closed:
            await asyncio.sleep(0.01)

    asyncio.run(look())


def test_names_and_reasons_are_data_and_no_markup(fleet):
    around, people = fleet
    nasty = "<img src=x onerror=alert(1)>"
    around.feeds["north"].tell(events.Joined(nasty, 3, nasty, nasty, nasty, at=2.0))
    around.feeds["north"].tell(events.Lost(nasty, nasty, at=3.0))
    answer = people["viewer"].ask("/fleets/north/device/%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E")
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert json.loads(answer.read())["device"]["name"] == nasty
    missing = people["viewer"].ask("/runs/%3Cscript%3E/")
    assert (missing.status, missing.headers["Content-Type"]) == (404, "text/plain; charset=utf-8")


@pytest.mark.parametrize("path", sorted(STATIC.glob("*.js")), ids=lambda path: path.name)
def test_scripts_of_the_page_never_make_markup_or_code_of_text(path):
    text = path.read_text()
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "srcdoc"):
        assert way not in text


def test_metrics_are_of_fleets_and_of_the_queue(fleet):
    around, people = fleet
    for fact in devices(20):
        around.feeds["north"].tell(fact)
    around.feeds["south"].tell(events.Joined("other", 5, at=1.0))
    runs(around, 30)
    text = people["viewer"].ask("/metrics").read().decode()
    families = {one.name: one for one in parser.text_string_to_metric_families(text)}
    phases = {(one.labels["fleet"], one.labels["phase"]): one.value for one in families["edgefl_server_runs"].samples}
    assert (phases["north", "working"], phases["north", "queued"], phases["north", "failed"]) == (2, 7, 1)
    assert phases["south", "queued"] == 0
    assert families["edgefl_server_places"].samples[0].value == 2
    of = {one.labels["device"]: one.labels["fleet"] for one in families["edgefl_device_up"].samples}
    assert (of["other"], of["pi-0001"], len(of)) == ("south", "north", 21)
    assert text.count("# TYPE edgefl_device_up ") == 1


def test_metrics_are_of_the_fleets_of_who_asks(fleet):
    around, people = fleet
    around.feeds["south"].tell(events.Joined("other", 5, at=1.0))
    runs(around, 14, "south")
    text = people["northern"].ask("/metrics").read().decode()
    assert "south" not in text
    assert "other" not in text
    assert people["nobody"].ask("/metrics").status == 401


def test_another_web_page_cannot_pause_a_run_in_the_name_of_a_visitor(fleet):
    around, people = fleet
    runs(around, 14)
    cookie = f"edgefl_server={around.people.cookie(people['operator'].token)}"
    headers = {"Cookie": cookie, "Sec-Fetch-Site": "cross-site"}
    assert people["nobody"].ask("/api/v1/runs/sensors-2/pause", "POST", **headers).status == 403
    same = {**headers, "Sec-Fetch-Site": "same-origin"}
    assert people["nobody"].ask("/api/v1/runs/sensors-2/pause", "POST", **same).status == 204
