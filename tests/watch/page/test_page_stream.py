"""What a browser is told: everything once, then what has changed; after a break only what it missed."""

import json
import threading
from math import nan
from pathlib import Path

import pytest
from invented_run import invented
from visitors import Serve, Stream, Visitor

from edgefl.base import events
from edgefl.base.events import Fact
from edgefl.watch.page import feed, stream


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "PACE", 0.0)


def names(rows: object) -> list[str]:
    assert isinstance(rows, list)
    return [row["name"] for row in rows]


def test_the_first_event_has_everything_and_the_next_what_has_changed(serve: Serve) -> None:
    page = serve(*invented(5, 3))
    watching = Stream(page.ask("/events"))
    first = watching.next()
    assert first["whole"] is True
    assert len(first["rounds"]) == 3  # type: ignore[arg-type]
    assert len(names(first["devices"])) == 5
    page.feed.tell(events.Lost("pi-002", "gone"))
    second = watching.next()
    assert second["whole"] is False
    assert second["rounds"] == []
    assert names(second["devices"]) == ["pi-002"]


def test_a_browser_that_was_away_is_told_what_it_missed(serve: Serve) -> None:
    page = serve(*invented(5, 3))
    watching = Stream(page.ask("/events"))
    watching.next()
    page.connections[0].close()
    page.feed.tell(events.Lost("pi-001"))
    again = Stream(page.ask("/events", Last_Event_ID=watching.mark)).next()
    assert (again["whole"], names(again["devices"])) == (False, ["pi-001"])
    also = Stream(page.ask(f"/events?since={watching.mark}")).next()
    assert (also["whole"], names(also["devices"])) == (False, ["pi-001"])


@pytest.mark.parametrize(
    "mark", ["", "0badcafe-3", "{life}-", "{life}--1", "{life}-1e3", "x" * 5000, "{life}-" + "9" * 400]
)
def test_a_mark_of_another_life_or_of_nobody_means_everything(serve: Serve, mark: str) -> None:
    page = serve(*invented(3, 1))
    told = Stream(page.ask("/events", Last_Event_ID=mark.format(life=page.feed.life))).next()
    assert (told["whole"], len(names(told["devices"]))) == (True, 3)


def test_a_mark_from_the_future_is_not_an_error(serve: Serve) -> None:
    page = serve(*invented(3, 1))
    assert Stream(page.ask("/events", Last_Event_ID=f"{page.feed.life}-99999")).next()["devices"] == []


def test_only_so_many_watch_and_who_leaves_makes_room(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "MOST", 2)
    page = serve(*invented(1, 1))
    watching = [Stream(page.ask("/events")) for _ in range(2)]
    for one in watching:
        one.next()
    refused = page.ask("/events")
    assert (refused.status, refused.getheader("Retry-After")) == (503, "10")
    page.connections[0].close()
    watching[0].answer.close()
    for _ in range(500):  # nobody tells when the server has noticed
        answer = page.ask("/events")
        if answer.status == 200:
            break
        page.connections.pop().close()
        threading.Event().wait(0.02)
    assert Stream(answer).next()["whole"] is True


def test_a_line_without_news_shows_that_it_holds(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT", 0.02)
    answer = serve(*invented(1, 1)).ask("/events")
    Stream(answer).next()
    assert answer.readline() == b": still here\n"


def test_the_end_of_the_coordinator_is_told_and_takes_no_time(serve: Serve) -> None:
    page = serve(*invented(2, 1))
    watching = [Stream(page.ask("/events")) for _ in range(3)]
    for one in watching:
        one.next()
    page.server.close()
    for one in watching:
        assert one.next("end") == {}
        assert one.answer.readline() == b""
    assert "page" not in {thread.name for thread in threading.enumerate()}


def test_a_fact_that_cannot_be_shown_does_not_reach_the_run(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    page = serve(*invented(1, 1))

    def broken(_: Fact) -> None:
        raise RuntimeError("a bug of ours")

    monkeypatch.setattr(page.feed._overview, "tell", broken)
    page.feed.tell(events.Connected())
    assert page.ask("/api/overview").status == 200


def test_thousands_of_facts_while_many_watch_lose_nothing(serve: Serve) -> None:
    page = serve()
    watching = [Stream(page.ask("/events")) for _ in range(4)]
    thread = threading.Thread(target=lambda: [page.feed.tell(fact) for fact in invented(40, 60)])
    thread.start()
    thread.join()
    last = page.json("/api/overview")
    for one in watching:
        rounds: set[int] = set()
        while one.mark != last["mark"]:
            rounds |= {row["round"] for row in one.next()["rounds"]}  # type: ignore[attr-defined]
        assert rounds == set(range(1, 61))


def test_figures_that_are_no_numbers_are_null(serve: Serve) -> None:
    page = serve(events.Round(1, scores={"accuracy": 0.5, "loss": nan}, per_class=(nan, 1.0)))
    (row,) = page.json("/api/overview")["rounds"]  # type: ignore[misc]
    assert (row["loss"], row["per_class"]) == (None, [None, 1.0])


def test_the_story_of_a_device(serve: Serve) -> None:
    page = serve(*invented(3, 4))
    told = page.json("/api/device/pi-001")
    assert told["device"]["name"] == "pi-001"  # type: ignore[index]
    assert len(told["turns"]) == 4  # type: ignore[arg-type]
    assert page.ask("/api/device/nobody").status == 404
    assert page.ask("/api/device/%00%0a..%2f").status == 404


def test_who_was_slow(serve: Serve) -> None:
    page = serve(*invented(4, 5))
    everybody = page.json("/api/slow")["devices"]
    assert {row["device"] for row in everybody} == {"pi-000", "pi-001", "pi-002", "pi-003"}  # type: ignore[attr-defined]
    assert page.json("/api/slow?since=9000000000")["devices"] == []
    assert page.ask("/api/slow?since=tuesday").status == 400


def test_runs_of_the_folder_are_listed_the_newest_first(serve: Serve, tmp_path: Path) -> None:
    for name, rounds in (("older", 2), ("here", 3)):
        (tmp_path / name).mkdir()
        lines = [
            json.dumps(events.as_json(f))
            for f in invented(2, rounds, finished=name == "older")
            if isinstance(f, events.Round | events.Done)
        ]
        (tmp_path / name / "metrics.jsonl").write_text("\n".join(lines) + '\n{"event": "rou')
    (tmp_path / "junk").mkdir()
    (tmp_path / "junk" / "metrics.jsonl").write_bytes(b"\xff\x00")
    page: Visitor = serve(runs=tmp_path)
    listed = page.json("/api/runs")["runs"]
    assert [(run["name"], run["rounds"], run["finished"], run["here"]) for run in listed] == [  # type: ignore[attr-defined]
        ("here", 3, False, True),
        ("older", 2, True, False),
    ]
    rounds = page.json("/api/runs/older")["rounds"]
    assert [row["accuracy"] for row in rounds] == [f.accuracy for f in invented(2, 2) if isinstance(f, events.Round)]  # type: ignore[attr-defined]
