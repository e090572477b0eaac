"""A vital sign is declared once: what reads, sends, shows or counts it goes by that declaration."""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest

from edgefl.base import events
from edgefl.base.events import as_json
from edgefl.base.vitals import SIGNS, Unit, described, glance
from edgefl.watch.exporters import prometheus
from edgefl.wire.messages import WireVitals

STATIC = Path(__file__).parents[2] / "edgefl" / "watch" / "page" / "static"
ORDER = [
    *("temperature", "throttled", "load", "memory_free", "memory_total"),
    *("disk_free", "disk_total", "battery", "charging"),
]


def test_message_and_fact_have_the_declared_fields_in_their_order() -> None:
    assert list(SIGNS) == ORDER
    assert list(WireVitals.model_fields) == ORDER
    assert list(as_json(events.Vitals("a"))) == ["event", "device", *ORDER, "at"]
    assert {one.name: one.default for one in fields(events.Vitals) if one.name in SIGNS} == dict.fromkeys(SIGNS)


def test_a_fact_is_a_small_record_like_all_others() -> None:
    assert not hasattr(events.Vitals("a"), "__dict__")
    assert events.Vitals("a", 61.5, True) == events.Vitals("a", temperature=61.5, throttled=True)


def test_the_sign_that_another_one_completes_is_shown() -> None:
    for sign in SIGNS.values():
        assert not sign.of or SIGNS[sign.of].title
        assert not sign.alone or sign.of


def test_every_sign_has_a_metric() -> None:
    assert {name: metric.name for name, metric in prometheus.VITALS.items() if name != "at"} == {
        name: sign.metric for name, sign in SIGNS.items()
    }


def test_the_page_knows_every_unit_and_no_sign() -> None:
    units = set(get_args(Unit)) - {"number"}  # which is shown as any other figure
    assert units <= set(re.findall(r'unit === "(\w+)"', (STATIC / "format.js").read_text(encoding="utf-8")))
    names = re.compile(rf"""[."'`]({"|".join(SIGNS)})\b""")
    assert [path.name for path in STATIC.glob("*.js") if names.search(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    ("readings", "words", "brief"),
    [
        (
            {"temperature": 84.04, "throttled": True, "load": 0.9, "memory_free": 1_200_000_000, "memory_total": 9},
            "84.0 °C, throttled, load 0.90, 1.2 GB of memory free",
            "84 °C, throttled",
        ),
        (
            {"disk_free": 20e9, "battery": 0.5, "charging": True},
            "20.0 GB of disk free, battery 50%, charging",
            "battery 50%",
        ),
        ({"throttled": True}, "throttled", "throttled"),
        ({"throttled": False, "load": 0.0}, "load 0.00", ""),
        ({"charging": True}, "its machine reports nothing", ""),
        ({"temperature": "hot", "battery": None, "of_tomorrow": 1.0, "at": 3.0}, "its machine reports nothing", ""),
        ({}, "its machine reports nothing", ""),
    ],
)
def test_readings_in_words(readings: dict[str, Any], words: str, brief: str) -> None:
    assert (described(readings), glance(readings)) == (words, brief)
