"""The page in a real browser: what it shows, how little it does for that, and what it does not fall for."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from browsing import Browse, Window
from invented_run import CLASSES, invented
from visitors import Serve, Stream

from edgefl.base import events
from edgefl.job.config.page import Page
from edgefl.learn.evaluation.figures import title_of

VIEWS = ("run", "fleet", "rounds", "runs")
NASTY = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    '"><svg onload=alert(3)>',
    "javascript:alert(4)",
    "{{constructor.constructor('alert(5)')()}}",
    "\u202egnp.exe\u202c\u200f\u0000\u001b[2J",
    "x" * 5000,
    "../../etc/passwd",
    "%00%0a<b>&amp;",
]


def reports(*facts: events.Fact) -> list[events.Round]:
    return [fact for fact in facts if isinstance(fact, events.Round)]


def told(window: Window) -> dict[str, str]:
    """Every tile, by its name."""
    return {tile.get_attribute("data-tile"): tile.inner_text() for tile in window.page.locator(".tile").all()}


def test_what_is_shown_is_what_was_told(serve: Serve, browse: Browse) -> None:
    facts = list(invented(7, 12))
    window = browse(serve(*facts).server.url).drawn()
    *_, last = reports(*facts)
    assert window.text("#run-name") == "invented"
    assert window.value('[data-tile="accuracy"] dd span') == last.accuracy
    assert window.value('[data-tile="loss"] dd span') == last.loss
    assert window.value('[data-tile="traffic"] dd span') == sum(fact.bytes_up for fact in reports(*facts))
    assert f"{last.accuracy:.1%}".replace("%", " %") in told(window)["accuracy"]
    assert window.value('[data-chart="loss"] .keys b') == last.loss
    window.go("rounds")
    rows = window.rows("#rounds-table")
    assert len(rows) == 12
    for row, fact in zip(rows.values(), reversed(reports(*facts)), strict=True):
        assert (float(row["Round"]), float(row["Accuracy"]), float(row["Loss"])) == (
            fact.round,
            fact.accuracy,
            fact.loss,
        )
        assert (float(row["Merged"]), float(row["Time"])) == (fact.devices, fact.seconds)


def test_the_round_in_hand_says_who_is_awaited_and_why(serve: Serve, browse: Browse) -> None:
    page = serve(*invented(4, 1))
    window = browse(page.server.url).drawn()
    page.feed.tell(events.Asked(2, 2, ("pi-000", "pi-001", "pi-002"), 10, at=events_now()))
    page.feed.tell(events.Answered("pi-000", 2, 10, at=events_now()))
    page.feed.tell(events.Answered("pi-002", 2, 10, at=events_now()))
    page.feed.tell(events.Waiting("round 2: 2 of 3 answered; waiting for pi-001", at=events_now()))
    window.wait_for_text("#now-title", "2 of 3 answered")
    window.wait_for_text("#now-why", "waiting for pi-001")
    assert window.page.locator('#asked-list a[data-awaited="true"]').all_inner_texts() == ["pi-001"]
    page.feed.tell(events.Waiting("round 2: 2 of 3 answered; waiting for pi-001", lasts=True, at=events_now()))
    window.wait_for('#now-why[data-urgent="true"]')
    page.feed.tell(events.Paused("the disk is full", at=events_now()))
    window.wait_for_text("#now-why", "the disk is full")
    window.wait_for('#run-state[data-state="paused"]')


def events_now() -> float:
    return 1_700_000_100.0


@pytest.mark.parametrize("text", NASTY, ids=range(len(NASTY)))
def test_whatever_a_device_says_is_shown_and_not_obeyed(serve: Serve, browse: Browse, text: str) -> None:
    page = serve(
        events.Started(text, text, text, text, text, 3, at=1.0),
        events.Evaluating(text, 10, 0, None, 0, 2, (text, text + "2"), at=1.0),
        events.Joined(text, 3, text, text, text, at=2.0),
        events.Asked(1, 1, (text,), 5, at=3.0),
        events.Declined(text, 1, text, at=4.0),
        events.Refused(text, text, text, at=4.0),
        events.Round(
            1,
            scores={"accuracy": 0.5, "balanced_accuracy": 0.5, "loss": 1.0},
            per_class=(0.4, 0.6),
            devices=1,
            seconds=1.0,
            at=5.0,
        ),
        events.Asked(2, 2, (text,), 5, at=6.0),
        events.Waiting(text, at=6.0),
        events.Disconnected(text, at=7.0),
    )
    window = browse(page.server.url, width=390).drawn()
    scripts = window.run("document.scripts.length")
    begin = text[:6].replace("\u202e", "").strip()[:4]
    assert begin in window.text("#run-name").replace("\\u202e", "")
    for view in VIEWS:
        window.go(view)
        assert window.too_wide() == [], view
    window.go("fleet")
    window.wait_for("#fleet-table .name")
    window.page.locator("#fleet-table .name").first.click()
    window.wait_for("#device[open] .story li")
    assert begin in window.text("#device-name").replace("\\u202e", "")
    assert window.run("document.scripts.length") == scripts == 2
    assert (
        window.run("document.querySelectorAll('main img, main svg, dialog img, dialog svg, iframe, object').length")
        == 0
    )
    assert window.run("document.dir || document.documentElement.dir") == ""


def test_five_hundred_devices_and_rounds_cost_no_more_than_what_is_in_sight(serve: Serve, browse: Browse) -> None:
    page = serve(*invented(500, 500))
    window = browse(page.server.url).drawn()
    assert window.run("document.querySelectorAll('*').length") < 1500
    window.go("rounds")
    window.go("fleet")
    window.wait_for("#fleet-table [role=row] .name")
    assert window.run("document.querySelectorAll('#fleet-table [role=row]').length") < 60
    assert len(window.rows("#fleet-table")) == 500
    window.run("document.querySelector('#fleet-table .body').scrollTop = 0")
    window.run(
        """() => { window.changes = 0;
        new MutationObserver((records) => { window.changes = Math.max(window.changes, records.length); })
        .observe(document.body, { subtree: true, childList: true, characterData: true, attributes: true }); }"""
    )
    version = int(window.run("Number(document.body.dataset.version)"))
    page.feed.tell(events.Lost("pi-003", "its battery is empty", at=1_700_009_000.0))
    window.wait_for(f'body[data-version="{version + 1}"]')
    most = "one device changed, of which a screen of rows is drawn again"  # in one drawing: times are drawn as well
    assert window.run("window.changes") < 400, most


def test_a_table_is_sorted_and_filtered_by_keyboard_too(serve: Serve, browse: Browse) -> None:
    page = serve(*invented(30, 9), events.Quarantined("pi-007", "three strikes", at=1.0), events.Lost("pi-020", at=2.0))
    window = browse(f"{page.server.url}/#fleet").drawn()
    window.wait_for_text("#fleet-table [role=row] .name", "pi-007")
    assert next(iter(window.rows("#fleet-table").values()))["Device"] == "pi-007", "who is in trouble comes first"
    window.page.locator("#fleet-table [role=columnheader] button", has_text="Device").focus()
    window.page.keyboard.press("Enter")
    window.wait_for('#fleet-table [aria-sort="ascending"]')
    names = [row["Device"] for row in window.rows("#fleet-table").values()]
    assert names == sorted(names)
    window.page.keyboard.press("Enter")
    window.wait_for('#fleet-table [aria-sort="descending"]')
    assert [row["Device"] for row in window.rows("#fleet-table").values()] == sorted(names, reverse=True)
    window.page.locator("#fleet-filters button", has_text="Offline").click()
    assert [row["Device"] for row in window.rows("#fleet-table").values()] == ["pi-020"]
    window.page.locator("#fleet-filters button", has_text="All").click()
    window.page.locator("#fleet-search").fill("three STRIKES")
    assert [row["Device"] for row in window.rows("#fleet-table").values()] == ["pi-007"]


def test_the_story_of_a_device_opens_and_closes(serve: Serve, browse: Browse) -> None:
    window = browse(f"{serve(*invented(3, 4)).server.url}/#fleet").drawn()
    window.page.locator("#fleet-table .name", has_text="pi-001").click()
    window.wait_for_text("#device .story", "answered round 4")
    assert window.run("location.hash") == "#device/pi-001"
    window.page.keyboard.press("Escape")
    window.wait_for('[data-section="fleet"]:not([hidden])')
    assert not window.page.locator("#device").is_visible()
    assert window.run("location.hash") == "#fleet"


def test_the_machine_of_a_device_is_shown_as_far_as_it_tells(serve: Serve, browse: Browse) -> None:
    hot = {"temperature": 84.26, "throttled": True, "load": 0.5, "memory_free": 2_000_000_000}
    warm = {"temperature": 61.0, "throttled": False, "battery": 0.5, "charging": True}
    page = serve(
        *invented(3, 1),
        events.Vitals("pi-000", **hot, memory_total=4_000_000_000, at=events_now()),
        events.Vitals("pi-001", **warm, at=events_now()),
        events.Vitals("pi-002", throttled=True, charging=True, at=events_now()),
    )
    window = browse(f"{page.server.url}/#fleet").drawn()
    rows = window.rows("#fleet-table")
    assert {row["Device"]: row["Temp."] for row in rows.values()} == {
        "pi-000": "84 °C",
        "pi-001": "61 °C",
        "pi-002": "–",
    }
    assert sorted(window.page.locator("#fleet-table .bad").all_inner_texts()) == ["84 °C", "–"]
    for device, lines in {
        "pi-000": ["84.3 °C, throttled", "0.500", "2.00 GB of 4.00 GB"],
        "pi-001": ["61.0 °C", "50 %, charging"],
        "pi-002": ["throttled"],
    }.items():
        window.run("name => { location.hash = `device/${name}`; }", device)
        window.wait_for_text("#device-name", device)
        window.wait_for_text("#device-body dd", lines[0])
        assert window.page.locator("#device-body .facts dd").all_inner_texts()[-len(lines) :] == lines


def luminance(colour: str) -> float:
    parts = [float(part) / 255 for part in re.findall(r"[\d.]+", colour)[:3]]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


CONTRASTS = """() => {
  const clear = /rgba\\(.*, 0\\)|transparent/;
  const behind = (node) => {
    while (node && clear.test(getComputedStyle(node).backgroundColor)) node = node.parentElement;
    return node ? getComputedStyle(node).backgroundColor : "rgb(255, 255, 255)";
  };
  const speaks = (node) => [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
  return [...document.querySelectorAll("body *")].filter((node) => node.offsetParent && speaks(node))
    .map((node) => [node.className || node.tagName, getComputedStyle(node).color, behind(node)]);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_word_can_be_read_in_light_and_dark(serve: Serve, browse: Browse, scheme: str) -> None:
    page = serve(
        *invented(12, 20), events.Quarantined("pi-001", "strikes", at=2.0), events.Asked(21, 21, ("pi-002",), 1, at=3.0)
    )
    window = browse(page.server.url, scheme=scheme).drawn()
    ground = luminance(window.run("getComputedStyle(document.body).backgroundColor"))
    assert (ground > 0.8) if scheme == "light" else (ground < 0.05)
    for view in VIEWS:
        window.go(view)
        window.wait_for(f'[data-section="{view}"] *')
        for name, front, back in window.run(CONTRASTS):
            light, dark = sorted((luminance(front), luminance(back)), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (view, name, front, back)


def test_light_and_dark_can_be_chosen_and_stay(serve: Serve, browse: Browse) -> None:
    window = browse(serve(*invented(2, 3)).server.url, scheme="light").drawn()
    window.page.locator("#theme").click()
    assert luminance(window.run("getComputedStyle(document.body).backgroundColor")) < 0.05
    window.page.reload()
    window.drawn()
    assert luminance(window.run("getComputedStyle(document.body).backgroundColor")) < 0.05


def test_a_phone_needs_no_scrolling_to_the_side(serve: Serve, browse: Browse) -> None:
    window = browse(serve(*invented(300, 100)).server.url, width=390).drawn()
    for view in VIEWS:
        window.go(view)
        assert window.too_wide() == [], view
    window.go("fleet")
    window.page.locator("#fleet-table .name").first.click()
    window.wait_for("#device .story li")
    assert window.too_wide() == []


def test_a_token_is_typed_once(serve: Serve, browse: Browse, tmp_path: Path) -> None:
    word = tmp_path / "token"
    page = serve(*invented(2, 2), page=Page(port=0, token=word))
    window = browse(page.server.url)
    window.page.fill("#token", "wrong")
    window.page.click("button")
    window.wait_for_text(".wrong", "not the token")
    window.page.fill("#token", word.read_text().strip())
    window.page.click("button")
    window.drawn()
    window.wait_for('#line[data-line="live"]')
    assert word.read_text().strip() not in window.page.url
    assert window.run("document.cookie") == "", "no script can read it"
    window.page.reload()
    window.drawn()


def test_a_browser_that_lost_the_line_takes_it_up_where_it_was(serve: Serve, browse: Browse) -> None:
    page = serve(*invented(3, 2))
    window = browse(page.server.url).drawn()
    window.wait_for('#line[data-line="live"]')
    first = page.server
    page.server.close()
    window.wait_for_text("#line", "the coordinator has ended")
    again = serve(*invented(3, 5), page=Page(port=first.port))
    assert again.server.as_asked
    window.wait_for('#line[data-line="live"]')
    window.wait_for_text("#rounds-count", "5/")
    window.go("rounds")
    assert len(window.rows("#rounds-table")) == 5


def test_classes_and_their_names_are_on_the_map(serve: Serve, browse: Browse) -> None:
    window = browse(serve(*invented(3, 6)).server.url).drawn()
    window.wait_for('[data-chart="classes"] canvas')
    assert window.page.locator('[data-chart="classes"] .heat-names span').all_inner_texts() == list(CLASSES)
    grid = window.page.locator('[data-chart="classes"] .heat > canvas')
    box: Any = grid.bounding_box()
    grid.hover(position={"x": box["width"] - 3, "y": 3})
    *_, last = reports(*invented(3, 6))
    assert last.per_class is not None
    window.wait_for_text(
        '[data-chart="classes"] .keys', f"round 6, {CLASSES[0]}: {100 * (last.per_class[0] or 0):.1f} %"
    )


def test_what_devices_saw_is_shown_beside_what_the_coordinator_saw(serve: Serve, browse: Browse) -> None:
    seen = {
        "scores": {"accuracy": 0.8},
        "per_class": (0.7, 0.9, 0.8, 0.8, 0.8, 0.8),
        "median": 0.81,
        "worst_tenth": 0.4375,
    }
    counts = tuple(tuple(9 if i == j else 1 for i in range(6)) for j in range(6))
    facts = list(invented(6, 4))
    told = events.Evaluated(3, **seen, confusion=counts, devices=6, samples=84, at=facts[-1].at)  # type: ignore[arg-type]
    window = browse(serve(*facts, told).server.url).drawn()
    assert window.value('[data-tile="worst"] dd span') == 0.4375
    shares = [
        float(key.get_attribute("data-value")) for key in window.page.locator('[data-chart="spread"] .keys b').all()[:3]
    ]
    assert shares == [0.8, 0.81, 0.4375]
    window.wait_for_text('[data-chart="confusion"] .keys', "round 3")
    matrix = window.page.locator('[data-chart="confusion"] .heat > canvas')
    box: Any = matrix.bounding_box()
    matrix.hover(position={"x": 3, "y": box["height"] - 3})
    window.wait_for_text('[data-chart="confusion"] .keys', f"{CLASSES[5]} taken for {CLASSES[0]}: 1 of 14")


def test_devices_that_the_run_is_not_for_are_not_counted(serve: Serve, browse: Browse) -> None:
    why = "not in this run: [devices] of its run file names 1"
    page = serve(
        events.Started("one", "id", rounds=3, at=1.0),
        events.Joined("pi-01", 8, at=2.0),
        events.Refused("pi-02", "device.not_in_run", why, barred=True, at=3.0),
    )
    window = browse(page.server.url).drawn()
    assert "1 of 1" in told(window)["online"]
    window.wait_for_text("#fleet-count", "1/1")


def test_a_fleet_that_alone_can_judge_has_its_curves(serve: Serve, browse: Browse) -> None:
    page = serve(
        events.Started("blind", "id", rounds=3, at=1.0),
        events.Round(1, devices=3, seconds=2.0, at=2.0),
        events.Evaluated(1, scores={"accuracy": 0.625, "balanced_accuracy": 0.5, "loss": 1.25}, devices=3, at=3.0),
        events.Round(2, devices=3, seconds=2.0, at=3.0),
    )
    window = browse(page.server.url).drawn()
    assert window.value('[data-tile="accuracy"] dd span') == 0.625
    assert window.text('[data-tile="accuracy"] dt') == "Accuracy on devices"
    assert window.value('[data-tile="loss"] dd span') == 1.25
    window.go("rounds")
    assert [row["Accuracy"] for row in window.rows("#rounds-table").values()] == ["", "0.625"]


@pytest.mark.parametrize(
    ("scores", "charts"),
    [
        ({"loss": 1.5, "rmse": 1.25, "mae": 0.5, "r2": 0.75}, ["loss", "rmse", "r2"]),
        ({"mean_iou": 0.5, "pixel_accuracy": 0.75, "loss": 1.5}, ["mean_iou", "pixel_accuracy", "loss"]),
    ],
)
def test_every_figure_has_a_tile_a_curve_and_a_column_whatever_the_task(
    scores: dict[str, float], charts: list[str], serve: Serve, browse: Browse
) -> None:
    facts = (events.Round(number, scores, devices=3, seconds=2.0, at=float(number)) for number in (1, 2))
    seen = events.Evaluated(1, scores, devices=3, median=0.5, worst_tenth=0.25, local_scores=scores, at=2.0)
    window = browse(serve(*facts, seen).server.url).drawn()
    assert list(told(window))[: len(scores)] == list(scores)
    assert {name: window.value(f'[data-tile="{name}"] dd span') for name in scores} == scores
    for name in charts:
        window.wait_for(f'[data-chart="{name}"] canvas')
        assert window.value(f'[data-chart="{name}"] .keys b') == scores[name]
    chief = next(name for name in scores if name != "loss")
    keys = window.page.locator('[data-chart="spread"] .keys b').all()
    assert [float(key.get_attribute("data-value")) for key in keys] == [scores[chief], 0.5, 0.25, scores[chief]]
    window.go("rounds")
    (titles, *_) = (list(row) for row in window.rows("#rounds-table").values())
    assert titles[1 : 1 + len(scores)] == [title_of(name)[0].upper() + title_of(name)[1:] for name in scores]


def test_runs_are_compared_side_by_side(serve: Serve, browse: Browse, tmp_path: Path) -> None:
    for name, rounds in (("here", 5), ("last week", 8), ("<i>odd", 3)):
        (tmp_path / name).mkdir()
        lines = [json.dumps(events.as_json(fact)) for fact in reports(*invented(3, rounds))]
        (tmp_path / name / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    window = browse(f"{serve(*invented(3, 5), runs=tmp_path).server.url}/#runs").drawn()
    window.wait_for("#runs-table tr[data-run]")
    assert window.page.locator("#runs-table tr[data-run]").count() == 3
    window.wait_for_text("#runs-chart .keys", "last week")
    window.page.locator('tr[data-run="last week"] input').uncheck()
    window.page.locator("#runs-chart .keys").filter(has_not_text="last week").wait_for()


def test_no_more_is_sent_than_has_changed(serve: Serve) -> None:
    page = serve(*invented(500, 500))
    watching = Stream(page.ask("/events"))
    whole = watching.next()
    page.feed.tell(events.Progressed("pi-003", 501, 7, at=1_700_009_000.0))
    change = watching.next()
    assert len(str(change)) < len(str(whole)) / 50
    assert "signs" in whole
    assert "signs" not in change, "how vital signs are shown does not change"
