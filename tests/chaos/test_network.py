"""Devices behind a cable that is pulled, loses packets or is slow: the run goes on by itself with the same model."""

import os
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from fleet import Fleet, Life
from netns import Netns

THOROUGH = os.environ.get("EDGEFL_CHAOS") == "1"
SHOWN = 17.0  # seconds until a device that cannot be heard is shown as offline: 1.5 times a keep-alive of 10, and 2
HOW = "real processes in two network namespaces joined by a veth pair, real Mosquitto"

pytestmark = [pytest.mark.broker, pytest.mark.timeout(900)]
thorough = pytest.mark.skipif(not THOROUGH, reason="takes minutes: make chaos")


@pytest.fixture
def netns() -> Iterator[Netns]:
    with Netns() as netns:
        yield netns


def _offline(life: Life, fleet: Fleet, since: float, patience: float) -> float | None:
    """Seconds until every device was shown as offline; None when some were not within that patience."""
    devices = set(fleet.names)
    with life.news:
        shown = life.news.wait_for(lambda: devices <= _lost(life), patience)
    return monotonic() - since if shown else None


def _lost(life: Life) -> set[str]:
    return {event["device"] for event in life.events if event["event"] == "lost"}


@pytest.mark.night
@pytest.mark.parametrize("seconds", [5, *(pytest.param(s, marks=thorough) for s in (30, 120))])
def test_a_cable_that_is_pulled_for_a_while_loses_nothing(
    seconds: int, netns: Netns, tmp_path: Path, figures: Any
) -> None:
    with Fleet(tmp_path, netns=netns, run={"rounds": 100}) as fleet:
        life = fleet.coordinator()
        fleet.all_agents()
        assert life.wait_for(event="round", round=2)
        netns.pull()
        began, done = monotonic(), sum(event["event"] == "round" for event in life.events)
        shown = _offline(life, fleet, began, min(seconds, SHOWN))
        life.process.join(max(0.0, began + seconds - monotonic()))
        assert life.find(event="ended") is None, "the run went on without its devices"
        netns.plug()
        plugged = monotonic()
        assert life.wait_for(event="round", round=done + 3)
        back = monotonic() - plugged
        fleet.check(fleet.until_done(life), f"pulled for {seconds} s")
    if seconds > SHOWN:
        assert shown is not None, f"not shown as offline within {SHOWN:.0f} s"
    offline = "nobody was shown as offline" if shown is None else f"all shown as offline after {shown:.1f} s"
    figures(
        f"cable pulled for {seconds} s",
        f"{HOW}; the server's end of the link is set down, so that packets vanish",
        "none needed",
        f"same model, 0 receipts lost or counted twice; {offline} (promised: {SHOWN:.0f} s),"
        f" rounds went on {back:.1f} s after it was plugged in",
    )


@thorough
def test_every_tenth_packet_is_lost(netns: Netns, tmp_path: Path, figures: Any) -> None:
    netns.lose(0.1)
    began = monotonic()
    with Fleet(tmp_path, netns=netns, run={"rounds": 30}) as fleet:
        life = fleet.coordinator()
        fleet.all_agents()
        fleet.check(fleet.until_done(life), "10 % loss")
        took = monotonic() - began
    figures(
        "every tenth packet lost",
        f"{HOW}; iptables drops 10 % in each direction, at random",
        "the kernel's",
        f"30 rounds in {took:.0f} s, same model, 0 receipts lost or counted twice",
    )


@thorough
def test_a_slow_link_is_waited_for(netns: Netns, tmp_path: Path, figures: Any) -> None:
    netns.slow("64kbit")
    began = monotonic()
    with Fleet(tmp_path, netns=netns, run={"rounds": 30}) as fleet:
        life = fleet.coordinator()
        fleet.all_agents()
        fleet.check(fleet.until_done(life), "64 kbit/s")
        took = monotonic() - began
    figures(
        "slow link",
        f"{HOW}; tbf lets 64 kbit/s through in each direction, for three devices together",
        "none needed",
        f"30 rounds in {took:.0f} s, same model, 0 receipts lost or counted twice",
    )
