"""The page of a fleet in a real browser: what it shows, what it lets people do, and how little it does for that."""

from dataclasses import replace

import pytest

pytest.importorskip("starlette")

from browsing import windows_of
from invented_fleet import devices, label_all, runs, written_run
from served import served

from edgefl.base import events
from edgefl.watch.page import feed as feeds

NASTY = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    '"><svg onload=alert(3)>',
    "javascript:alert(4)",
    "\u202egnp.exe\u202c\u0000\u001b[2J",
    "x" * 5000,
    "../../etc/passwd",
    "%00%0a<b>&amp;",
]
COST = ("ScriptDuration", "LayoutDuration", "RecalcStyleDuration")


@pytest.fixture
def browse(chromium):
    with windows_of(chromium) as browse:
        yield browse


@pytest.fixture
def fleet(tmp_path, monkeypatch, browse):
    """A server, and what opens its page as a person who has typed in their token."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "server"
    folder.mkdir(mode=0o700)
    with served(folder) as (around, people):

        def visit(who="operator", place="north/overview", width=1280):
            window = browse(f"{people[who].url}/login", width=width)
            window.page.fill("#token", people[who].token)
            window.page.click("button")
            window.drawn()
            window.run("place => { location.hash = place; }", place)
            window.wait_for(f'[data-section="{place.split("/")[1]}"]:not([hidden])')
            return window

        yield around, visit


def tell(around, count, fleet="north"):
    for fact in devices(count):
        around.feeds[fleet].tell(fact)
    label_all(around.feeds[fleet])


def test_what_needs_a_person_comes_first_then_runs_then_devices_by_label(fleet):
    around, visit = fleet
    tell(around, 300)
    runs(around, 30)
    window = visit()
    window.wait_for_text("#needs li", "cannot use the newest data")
    window.wait_for_text("#needs li", "Run night-7 has failed")
    window.wait_for_text("#needs li", "temperature of 80")
    assert window.text('#queue li[data-run="sensors-10"] .hint').startswith("round 42 of 60 · accuracy 97.7 %")
    places = window.page.locator('#queue li[data-phase="queued"] .place').all_inner_texts()
    assert places == ["1", "2", "3", "4", "5"]
    assert window.text("#queue a.more") == "and 2 more in the queue"
    assert "cron 0 2 * * *" in window.text('#queue li[data-schedule="night"] .hint')
    window.page.locator("#groups-keys button", has_text="site").click()
    assert len(window.page.locator("#groups li").all()) == 5


def test_nothing_needs_a_person_where_all_is_well(fleet):
    around, visit = fleet
    around.feeds["north"].tell(events.Joined("pi-01", 3, at=1.0))
    window = visit()
    window.wait_for_text("#needs-none", "Nothing needs a person.")
    assert window.text("#fleet-pill") == "all well"
    assert "No run works or waits" in window.text("#queue")


def test_a_change_is_seen_without_a_question(fleet):
    around, visit = fleet
    tell(around, 40)
    window = visit()
    before = window.text('[data-tile="online"] dd span')
    around.feeds["north"].tell(events.Lost("pi-0002", "its battery is empty", at=2e9))
    window.wait_for_text('[data-tile="online"] dd span', str(int(before) - 1))
    runs(around, 14)
    window.wait_for('#queue li[data-phase="working"]')


def test_devices_are_found_by_words_states_and_labels(fleet):
    around, visit = fleet
    tell(around, 200)
    window = visit(place="north/devices")
    window.wait_for("#devices-table .name")
    assert len(window.rows("#devices-table")) == 200
    window.page.fill("#devices-search", "camera=v2")
    assert {row["camera"] for row in window.rows("#devices-table").values()} == {"v2"}
    window.page.fill("#devices-search", "")
    window.page.locator("#devices-labels label", has_text="site").locator("select").select_option("=harbour")
    shown = window.rows("#devices-table")
    assert {row["site"] for row in shown.values()} == {"harbour"}
    assert window.text("#devices-shown").startswith(f"{len(shown)} of 200 devices")
    window.page.locator("#devices-shown button").click()
    window.page.locator("#devices-filters button", has_text="Away").click()
    assert all(row["State"].startswith("offline") for row in window.rows("#devices-table").values())


def test_from_a_group_and_from_a_trouble_the_way_leads_to_their_devices(fleet):
    around, visit = fleet
    tell(around, 400)
    window = visit()
    window.page.locator("#groups-keys button", has_text="site").click()
    window.page.locator("#groups button", has_text="roof").click()
    window.wait_for('[data-section="devices"]:not([hidden])')
    window.wait_for_text("#devices-shown", "of 400 devices")
    assert {row["site"] for row in window.rows("#devices-table").values()} == {"roof"}
    window.run("() => { location.hash = 'north/overview'; }")
    window.page.locator("#needs li", has_text="newest data").locator("button").click()
    window.wait_for_text("#devices-shown", "cannot use the newest data")
    assert all("no data" in row["State"] for row in window.rows("#devices-table").values())


def test_the_story_of_a_device_opens_over_the_page_and_closes(fleet):
    around, visit = fleet
    tell(around, 20)
    window = visit(place="north/devices")
    window.page.locator("#devices-table .name", has_text="pi-0011").click()
    window.wait_for_text("#drawer .story", "has no usable data")
    window.wait_for_text("#drawer .labels", "camera")
    window.page.keyboard.press("Escape")
    window.page.locator("#drawer").wait_for(state="hidden")
    window.page.wait_for_function("location.hash === '#north/devices'")


def test_an_operator_pauses_and_resumes_and_is_asked_before_a_run_is_cancelled(fleet):
    around, visit = fleet
    runs(around, 30)
    window = visit()
    row = '#queue li[data-run="gestures-7"]'
    window.page.locator(row).get_by_role("button", name="Pause").click()
    window.wait_for(f'{row}[data-phase="paused"]')
    window.page.locator(row).get_by_role("button", name="Resume").click()
    window.wait_for(f'{row}[data-phase="queued"]')
    window.page.locator(row).get_by_role("button", name="Cancel").click()
    window.wait_for("#ask[open]")
    window.page.click("#ask-no")
    assert around.machine.phases()["gestures-7"] == "queued"
    window.page.locator(row).get_by_role("button", name="Cancel").click()
    window.page.keyboard.press("Escape")
    assert around.machine.phases()["gestures-7"] == "queued"
    window.page.locator(row).get_by_role("button", name="Cancel").click()
    window.page.click("#ask-yes")
    window.page.locator(row).wait_for(state="detached")
    assert around.machine.phases()["gestures-7"] == "cancelled"


SUMMED_UP = [
    "2 devices away",
    "2 devices cannot use the newest data",
    "night-1 is stalled",
    "pi-0007 is certificate",
    "server is disk",
]


def alert(kind, subject, fleet="north", quieted_by=""):
    """An alert as the API gives it."""
    since = "2026-01-01T00:00:00Z"
    about = {"kind": kind, "fleet": fleet, "subject": subject, "since": since, "told": since, "quieted_by": quieted_by}
    return {"id": f"id-{kind}-{subject}", "text": f"{subject} is {kind}", "remedy": f"look at {subject}", **about}


def test_what_an_alert_is_about_is_said_once_and_alike_alerts_are_one_entry(fleet):
    around, visit = fleet
    tell(around, 30)
    alerts = [
        *(alert("away", name) for name in ("pi-0005", "pi-0022")),
        *(alert("stale", name) for name in ("pi-0011", "<b>pi-0012</b>")),
        *(alert("stalled", "night-1"), alert("disk", "server", fleet=""), alert("certificate", "pi-0007")),
        *(alert("away", "elsewhere", fleet="south"), alert("temperature", "pi-0000", quieted_by="ann")),
    ]
    quieted = []

    def answer(route):
        if route.request.method == "POST":
            quieted.append(route.request.url.split("/")[-2])
            route.fulfill(status=204)
        else:
            shown = [{**one, "quieted_by": "ann" if one["id"] in quieted else one["quieted_by"]} for one in alerts]
            route.fulfill(json=shown)

    window = visit()
    window.page.route("**/api/v1/alerts**", answer)
    window.run("dispatchEvent(new Event('edgefl:alerts'))")
    window.page.reload()
    window.drawn()
    window.wait_for_text("#needs li", "2 devices away")
    titles = window.page.locator("#needs > li .what b").all_inner_texts()
    assert sorted(titles) == SUMMED_UP, "of pi-0011, whose data are broken, pi-0007 and pi-0000 the alert alone"
    assert window.text("#needs-known") == "and 1 alert that a person knows of"
    window.page.locator("#needs > li", has_text="2 devices away").get_by_role("button", name="I know").click()
    window.wait_for_text("#needs-known", "and 3 alerts")
    assert quieted == ["id-away-pi-0005", "id-away-pi-0022"]


def test_a_viewer_has_no_buttons(fleet):
    around, visit = fleet
    runs(around, 30)
    window = visit("viewer")
    window.wait_for('#queue li[data-phase="working"]')
    assert window.page.locator("#queue .buttons button").count() == 0


def test_of_several_fleets_one_is_chosen_and_each_has_its_own_devices(fleet):
    around, visit = fleet
    tell(around, 20)
    around.feeds["south"].tell(events.Joined("other", 5, at=1.0))
    window = visit()
    window.page.select_option("#fleet-select", "south")
    window.wait_for_text("#devices-count", "1/1")
    window.run("() => { location.hash = 'south/devices'; }")
    window.page.wait_for_selector("#devices-table .body", state="attached")
    assert [row["Device"] for row in window.rows("#devices-table").values()] == ["other"]
    bound = visit("northern")
    assert not bound.page.locator("#fleet-select").is_visible()
    assert bound.text("#fleet-name") == "north"


def test_the_page_of_a_run_opens_from_there_and_leads_back(fleet):
    around, visit = fleet
    runs(around, 30)
    written_run(around.folder / "runs" / "gestures-10")
    window = visit()
    window.page.locator('#queue li[data-run="gestures-10"] a').click()
    window.page.wait_for_url("**/runs/gestures-10/")
    window.wait_for_text("#now-title", "Round")
    window.run("() => { location.hash = 'runs'; }")
    window.wait_for_text("#runs-table", "gestures-10")
    window.page.set_viewport_size({"width": 390, "height": 844})
    assert window.too_wide() == []
    window.page.click("#back")
    window.wait_for("#needs-title")


@pytest.mark.parametrize("text", NASTY, ids=range(len(NASTY)))
def test_whatever_a_device_or_a_run_says_is_shown_and_not_obeyed(fleet, text):
    around, visit = fleet
    runs(around, 14)
    for name in (text, text[:40] + "2"):
        around.feeds["north"].tell(events.Joined(name, 3, text, text, text, at=2.0))
        around.feeds["north"].tell(events.DataBroken(name, text, at=3.0))
    label_all(around.feeds["north"])
    state = around.machine.server.state
    around.machine.server.state = with_reason(state, "gestures-1", text)
    window = visit(width=390)
    window.wait_for_text("#needs li", "cannot use the newest data")
    scripts = window.run("document.scripts.length")
    for view in ("overview", "devices", "runs"):
        window.run("place => { location.hash = place; }", f"north/{view}")
        window.wait_for(f'[data-section="{view}"]:not([hidden])')
        assert window.too_wide() == [], view
    window.run("() => { location.hash = 'north/devices'; }")
    window.page.locator("#devices-table .name").first.click()
    window.wait_for("#drawer[open] .story li")
    assert window.run("document.scripts.length") == scripts == 2
    markup = "document.querySelectorAll('main img, main svg, dialog img, dialog svg, iframe, object').length"
    assert window.run(markup) == 0


def with_reason(state, name, reason):
    return replace(state, runs={**state.runs, name: replace(state.runs[name], phase="failed", reason=reason)})


def test_a_thousand_devices_that_change_cost_no_more_rows_than_a_screen_has(fleet):
    around, visit = fleet
    figures = {}
    for name, count in (("south", 100), ("north", 1000)):
        tell(around, count, name)
        window = visit(place=f"{name}/devices")
        window.wait_for("#devices-table [role=row] .name")
        figures[count] = watched(window, around.feeds[name], count)
    nodes, cost = ({count: one[place] for count, one in figures.items()} for place in (0, 1))
    print(f"nodes {nodes}, seconds of script, style and layout {cost}")
    assert nodes[1000] < 1.2 * nodes[100] + 100
    assert nodes[1000] < 1500
    assert cost[1000] < 10 * cost[100], "ten times the devices are scrolled through and change"


def watched(window, feed: feeds.Feed, count: int) -> tuple[int, float]:
    """The most nodes in the document, and what it costs, while all devices change and the table is scrolled."""
    session = window.page.context.new_cdp_session(window.page)
    session.send("Performance.enable")
    before, most = spent(session), 0
    for turn in range(5):
        for i in range(count):
            feed.tell(events.Vitals(f"pi-{i:04d}", temperature=40.0 + (i + turn) % 30, at=2e9 + turn))
        window.run(
            """async (turn) => {
              const body = document.querySelector("#devices-table .body");
              for (let step = 0; step < 30; step += 1) {
                body.scrollTop = (body.scrollHeight * (step + 30 * turn)) / 150;
                await new Promise((done) => requestAnimationFrame(done));
              }
            }""",
            turn,
        )
        most = max(most, window.run("document.querySelectorAll('*').length"))
        window.page.wait_for_timeout(600)
    return most, spent(session) - before


def spent(session) -> float:
    metrics = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    return sum(metrics[name] for name in COST)
