from collections import Counter
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefl.sim.network import VirtualBroker
from edgefl.sim.world import World
from edgefl.system.hardware.line import Line
from edgefl.system.hardware.profiles import IDEAL, PROFILES, Hardware, Profile, assign, reference_seconds
from edgefl.wire.transport import Message


def test_an_ideal_device_takes_no_time_at_all():
    hardware = Hardware(IDEAL, reference=1.0)
    assert hardware.pace(1, 1, "a") == 0
    assert hardware.line == Line(latency=0, up=inf, down=inf)


def test_a_transfer_takes_its_latency_and_its_bits_over_the_bandwidth():
    world = World()
    broker, heard = VirtualBroker(world), dict[str, float]()
    slow = broker.client("slow", Hardware(Profile(up=8, down=16, latency=0.5), reference=1.0).line)
    quick = broker.client("quick")
    for client in (slow, quick):
        client.start(lambda event, who=client.id: heard.update({who: world.now} if isinstance(event, Message) else {}))
    world.run()
    slow.subscribe("down")
    quick.subscribe("up")
    world.run()
    began = world.now
    slow.publish("up", bytes(2_000_000))
    quick.publish("down", bytes(2_000_000))
    world.run()
    assert heard["quick"] - began == pytest.approx(0.5 + 2)
    assert heard["slow"] - began == pytest.approx(0.5 + 1)


def test_pace_is_the_reference_over_the_speed():
    assert Hardware(Profile(speed=4, jitter=0), reference=2.0).pace(1, 1, "a") == 0.5


def test_a_jittery_pace_has_a_name_and_so_a_fixed_value():
    hardware = Hardware(Profile(jitter=0.2), reference=1.0)
    paces = {(r, d): hardware.pace(7, r, d) for r in (1, 2) for d in ("a", "b")}
    assert len(set(paces.values())) == 4
    assert hardware.pace(7, 2, "a") == paces[2, "a"]


def test_a_given_cost_replaces_the_estimate():
    assert reference_seconds(10**6, 32, ms_per_step=250) == 0.25
    assert reference_seconds(10**6, 32) > reference_seconds(10**5, 32) > reference_seconds(10**5, 16)


def test_newer_boards_are_faster():
    speeds = [PROFILES[name].speed for name in ("pi3", "pi4", "pi5", "jetson-orin")]
    assert speeds == sorted(speeds)


@given(st.dictionaries(st.sampled_from(sorted(PROFILES)), st.integers(1, 5), min_size=1), st.integers(0, 9))
def test_every_profile_is_dealt_out_as_often_as_counted(counts, seed):
    devices = tuple(f"d{i}" for i in range(sum(counts.values())))
    assert Counter(assign(counts, devices, seed).values()) == counts
