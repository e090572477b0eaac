import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from facts import in_short

from edgefl.base import seeds
from edgefl.base.errors import ConfigError, Diverged, RunError
from edgefl.base.events import Asked, Closed, Declined, Fact
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.job.run.job import Job, RunState
from edgefl.learn.algorithms import registry
from edgefl.learn.data.dataset import Dataset
from edgefl.sim.emulated import kinds
from edgefl.sim.emulator import Emulator, emulate
from edgefl.sim.engines import InProcessEngine
from edgefl.sim.loop import simulate
from edgefl.wire.signing import Signer

Events = list[dict[str, Any]]


def prepared(algorithm: Mapping[str, Any], **more: Mapping[str, Any]) -> tuple[Job, dict[str, Dataset]]:
    """Six devices, a cohort of four, a network of a few hundred weights."""
    table: dict[str, Any] = {
        "run": {"name": "emulated", "rounds": 4, "seed": 5},
        "task": {
            "data": "synthetic",
            "model": "softmax",
            "backend": "torch",
            "public": 0.1,
            "partition": {"kind": "dirichlet", "omega": 0.5, "devices": 6},
        },
        "algorithm": {"batch": 16, "epochs": 2, **algorithm},
        "rounds": {"cohort": 4, "quorum": 2, "deadline": 10.0},
    }
    for section, keys in more.items():
        table[section] = {**table.get(section, {}), **keys}
    job, held = jobs.prepare(parse(RunFile, table, "test", environment={}))
    return job, dict(zip(jobs.device_names(len(held.devices)), held.devices, strict=True))


def emulated(algorithm: Mapping[str, Any], **more: Mapping[str, Any]) -> tuple[RunState, Events, Events]:
    """The end, its rounds, and everything else that was told."""
    told: Events = []
    run_state = emulate(*prepared(algorithm, **more), in_short(told.append))
    return run_state, [e for e in told if e["event"] == "round"], [e for e in told if e["event"] != "round"]


@pytest.mark.parametrize("name", [*sorted(registry.algorithm_registry())])
def test_ideal_devices_end_with_the_model_of_the_plain_loop_bit_for_bit(name: str):
    part = {"private": ["*.bias"]} if name in {"fedper", "fedrep", "fedbn"} else {}  # of the one layer there is
    job, devices = prepared({"name": name, "batches": 3, **part}, task={"model": "mlp"} if name == "fedmlb" else {})
    looped: Events = []
    on_clock: Events = []
    assert (
        emulate(job, devices, in_short(on_clock.append)).sha256()
        == simulate(job, devices, in_short(looped.append)).sha256()
    )
    for key in ("bytes_up", "bytes_down", "devices", "accuracy"):
        assert [e.get(key) for e in on_clock] == [e.get(key) for e in looped]
    assert on_clock[-1]["virtual_seconds"] == 0


def test_even_steps_on_devices_go_to_the_devices_of_the_odd_ones():
    job, devices = prepared({"name": "upcycled", "even": "device"})
    assert emulate(job, devices).sha256() == simulate(job, devices).sha256()


def test_a_lossy_codec_gives_the_same_model_in_both_drivers():
    job, devices = prepared({"name": "fedgc"}, wire={"codec": "float16"})
    assert emulate(job, devices).sha256() == simulate(job, devices).sha256()


@pytest.mark.parametrize("enclosed", [False, True])
def test_a_round_takes_as_long_as_its_slowest_device(enclosed: bool):
    slow = {"speed": 0.5, "up": 8.0, "down": 16.0, "latency": 1.0, "jitter": 0.0}
    hardware = {"profiles": {"slow": 6}, "custom": {"slow": slow}, "ms_per_step": 100.0}
    wire = {} if enclosed else {"enclose_kb": 0}
    _, rounds, (done,) = emulated({"name": "fedavg", "batches": 5}, fleet=hardware, wire=wire)
    up, down = rounds[0]["bytes_up"] / 4, rounds[0]["bytes_down"] / 4
    # The task comes down, the device subscribes, the model comes down (or came with the task), the answer goes up; five
    # steps of 100 ms at half the speed. Small messages and headers take a moment more.
    fetching = 0 if enclosed else 1 + 1
    expected = 1 + fetching + down * 8 / 16e6 + 5 * 0.2 + 1 + up * 8 / 8e6
    hello = 1 + 1 + 1  # CONNECT, CONNACK, presence: only then a device is there
    assert rounds[0]["virtual_waiting_seconds"] == pytest.approx(hello, abs=0.01)
    assert rounds[0]["virtual_seconds"] == pytest.approx(hello + expected, abs=0.01)
    assert [e["virtual_seconds"] for e in rounds[1:]] == pytest.approx([expected] * 3, abs=0.01)
    assert done["virtual_seconds"] == pytest.approx(hello + 4 * expected, abs=0.04)


def test_the_same_seed_gives_the_same_story_and_another_seed_another():
    rough = {
        "profiles": {"pi3": 3, "jetson-orin": 3},
        "dropout": 0.3,
        "ms_per_step": 400.0,
        "availability": {"on": 40, "off": 10},
    }

    def story(seed: int) -> tuple[str, Events]:
        run_state, rounds, _ = emulated({"name": "fedprox"}, fleet=rough, run={"seed": seed})
        keys = ("virtual_seconds", "bytes_up", "bytes_down", "late", "devices")
        return run_state.sha256(), [{key: e[key] for key in keys} for e in rounds]

    assert story(1) == story(1)
    assert story(1) != story(2)


def test_the_first_cohort_is_drawn_from_all_that_are_there_and_over_selected_like_every_other():
    job, devices = prepared(
        {"name": "fedavg"},
        rounds={"cohort": 2, "over_select": 1.5},
        fleet={"availability": {"on": 1e6, "off": 1}},
        run={"seed": 1},
    )
    told: list[Fact] = []
    emulate(job, devices, told.append)
    assert next(fact for fact in told if isinstance(fact, Asked)).devices == seeds.sample(1, 1, devices, 3)


def test_where_too_few_are_there_at_first_the_waiting_is_told_apart():
    nights = {"availability": {"on": 50.0, "off": 50.0}}
    for seed in range(5):
        _, rounds, _ = emulated({"name": "fedavg"}, fleet=nights, rounds={"quorum": 4}, run={"seed": seed})
        assert all(0 <= e["virtual_waiting_seconds"] <= e["virtual_seconds"] for e in rounds)
        assert all(e["waiting_seconds"] == 0 < e["seconds"] for e in rounds)
        if any(e["virtual_waiting_seconds"] for e in rounds):
            return
    pytest.fail("nobody ever waited")


def test_a_device_gets_as_many_batches_as_fit_the_deadline_and_partial_work_counts():
    still = {"speed": 1.0, "up": 1e6, "down": 1e6, "latency": 0.0, "jitter": 0.0}
    hardware = {"profiles": {"still": 6}, "custom": {"still": still}, "ms_per_step": 1000.0}
    _, rounds, _ = emulated({"name": "fedavg", "batches": 50}, fleet=hardware)
    # 0.8 of ten seconds at a second per step: eight steps, in the first round by the device's own clock
    assert [e["virtual_seconds"] for e in rounds] == pytest.approx([8.0] * 4, abs=0.01)
    assert [e["devices"] for e in rounds] == [4] * 4


FETCHED = {"enclose_kb": 0}  # a model that does not come with its task
OVERSLOW = {
    "profiles": {"quick": 3, "tardy": 3},
    "custom": {
        "quick": {"speed": 1.0, "up": 100, "down": 100, "latency": 0.0, "jitter": 0.0},
        "tardy": {
            "speed": 1.0,
            "up": 100,
            "down": 100,
            "latency": 3.0,
            "jitter": 0.0,
        },  # 12 s in all
    },
}


def test_late_answers_are_counted_and_dropped():
    _, rounds, _ = emulated({"name": "fedavg"}, fleet=OVERSLOW, wire=FETCHED, rounds={"quorum": 1, "cohort": 4})
    assert sum(e["late"] for e in rounds) > 0
    assert all(e["devices"] <= 3 for e in rounds)
    assert all(e["virtual_seconds"] - e["virtual_waiting_seconds"] <= 10.0 + 1e-9 for e in rounds)


def test_late_answers_join_the_next_merge_when_discounted():
    few = {"quorum": 1, "cohort": 4}
    dropped, *_ = emulated({"name": "fedavg"}, fleet=OVERSLOW, wire=FETCHED, rounds=few)
    discounted, rounds, _ = emulated(
        {"name": "fedavg"}, fleet=OVERSLOW, wire=FETCHED, rounds={**few, "late": "discount"}
    )
    assert sum(e["late"] for e in rounds) > 0
    assert discounted.sha256() != dropped.sha256()


def test_late_answers_enter_the_memory_of_mifa_and_leave_fedavg_alone():
    few = {"quorum": 1, "cohort": 4}

    def ends(name: str, late: str) -> str:
        return emulated({"name": name}, fleet=OVERSLOW, wire=FETCHED, rounds={**few, "late": late})[0].sha256()

    assert ends("mifa", "memory") != ends("mifa", "drop")
    assert ends("fedavg", "memory") == ends("fedavg", "drop")


@pytest.mark.parametrize(("late", "arrive"), [("drop", False), ("discount", True)])
def test_who_still_trains_when_a_round_closes_stops_unless_late_answers_are_wanted(late: str, arrive: bool):
    def kind(speed: float) -> dict[str, float]:
        return {"speed": speed, "up": 1e6, "down": 1e6, "latency": 0.0, "jitter": 0.05}  # no two end together

    hardware = {"profiles": {"quick": 3, "slow": 3}, "custom": {"quick": kind(1.0), "slow": kind(0.6)}}
    fastest = {"cohort": 2, "quorum": 2, "over_select": 1.5, "late": late}
    _, rounds, _ = emulated(
        {"name": "fedavg", "batches": 5}, fleet={**hardware, "ms_per_step": 100.0}, rounds=fastest, run={"rounds": 12}
    )
    assert (sum(e["late"] for e in rounds) > 0) is arrive


def test_a_device_that_breaks_down_is_replaced_without_waiting_for_the_deadline():
    run_state, rounds, _ = emulated({"name": "fedavg"}, fleet={"dropout": 0.3})
    broke = [e for e in rounds if e["bytes_down"] / e["bytes_up"] > 1.1]  # somebody fetched and never answered
    assert run_state.round == 4
    assert any(0 < e["virtual_seconds"] < 10.0 for e in broke)  # not all: a replacement may break down in its turn


def test_an_update_trained_offline_arrives_after_the_return():
    hours = {"availability": {"on": 15.0, "off": 5.0}, "profiles": {"pi4": 6}, "ms_per_step": 500.0}
    run_state, rounds, _ = emulated({"name": "fedavg"}, fleet=hours, rounds={"quorum": 4, "deadline": 20.0})
    assert run_state.round == 4
    assert all(e["devices"] >= 4 for e in rounds)


def test_a_fleet_that_can_never_make_a_quorum_is_said_to_be_stuck():
    nights = {"availability": {"on": 1.0, "off": 1000.0}, "profiles": {"pi3": 6}, "ms_per_step": 10000.0}
    with pytest.raises(RunError, match="stuck"):
        emulated({"name": "fedavg"}, fleet=nights, rounds={"quorum": 4})


def test_a_target_ends_the_run_and_is_told_in_rounds_bytes_and_virtual_seconds():
    _, rounds, (done,) = emulated(
        {"name": "fedavg"}, fleet={"profiles": {"pi4": 6}}, run={"rounds": 40, "target_accuracy": 0.5}
    )
    assert done["rounds_to_target"] == len(rounds) < 40
    assert done["bytes_to_target"] == sum(e["bytes_up"] + e["bytes_down"] for e in rounds)
    assert done["virtual_seconds_to_target"] == pytest.approx(sum(e["virtual_seconds"] for e in rounds))


def test_profiles_are_dealt_out_as_counted():
    job, devices = prepared({"name": "fedavg"}, fleet={"profiles": {"pi3": 4, "pi5": 2}})
    speeds = [kind.hardware.profile.speed for kind in kinds(job, devices).values()]
    assert sorted(speeds) == [0.4] * 4 + [2.5] * 2


def test_local_and_aggregation_forgetting_are_told_on_request():
    job, devices = prepared({"name": "fedavg"}, run={"forgetting": True})
    told: Events = []
    emulate(job, devices, in_short(told.append))
    asked: Events = []
    simulate(job, devices, in_short(asked.append))
    for key in ("local_forgetting", "aggregation_forgetting"):
        forgetting = [e[key] for e in told[:-1]]
        assert forgetting == [e[key] for e in asked[:-1]]
        assert np.min(forgetting) >= 0
        assert np.max(forgetting) > 0


def test_a_private_update_that_never_arrives_in_time_is_spent_all_the_same():
    snail = {"speed": 100.0, "up": 8e-4, "down": 100.0, "latency": 0.0}  # trains in no time, sends for too long
    job, devices = prepared(
        {"name": "upcycled", "privacy": {"mechanism": "output"}},
        fleet={"profiles": {"ideal": 5, "snail": 1}, "custom": {"snail": snail}},
        rounds={"cohort": 6, "quorum": 5},
    )
    told: list[Fact] = []
    emulator = Emulator(job, devices, told.append, InProcessEngine(job, devices))
    emulator.run()
    slow = next(name for name, one in emulator.devices.items() if one.kind.hardware.profile.up < 1)
    assert [fact.missing for fact in told if isinstance(fact, Closed)] == [(slow,), (slow,)]
    kept = {name: state for name, (_, state) in emulator.kept().items()}
    assert set(kept[slow]) == {"odd_updates"}  # nothing else of it was ever accepted
    assert {int(state["odd_updates"]) for state in kept.values()} == {2}


def test_learning_that_diverges_ends_an_emulated_run_as_it_ends_the_loop():
    job, devices = prepared({"name": "fedavg", "lr": 1e30})
    ends = []
    for driver in (simulate, emulate):
        with pytest.raises(Diverged) as ended:
            driver(job, devices)
        ends.append(str(ended.value)[len("device 'device-00'") :])  # who is first depends on who hears first
    assert ends[0] == ends[1]


def test_a_device_whose_training_fails_declines_and_the_others_go_on():
    job, devices = prepared({"name": "fedavg"}, rounds={"cohort": 6, "quorum": 2})
    ill = next(iter(devices))
    devices[ill] = Dataset(np.full_like(devices[ill].x, 1e30), devices[ill].y, devices[ill].classes)
    told: list[Fact] = []
    assert emulate(job, devices, told.append).round == 4
    assert [fact.missing for fact in told if isinstance(fact, Closed)] == [(ill,)] * 4
    assert {fact.device for fact in told if isinstance(fact, Declined)} == {ill}
    with pytest.raises(Diverged, match=ill):
        simulate(job, devices)


def test_limits_and_keys_of_real_devices_do_not_hold_for_emulated_ones():
    of_somebody = Signer.new().key
    rules = {"guards": {"messages_per_minute": 0.1, "megabytes_per_minute": 1e-6}, "devices": {"pi-1": of_somebody}}
    job, devices = prepared({"name": "fedavg"}, **rules)
    assert emulate(job, devices).sha256() == simulate(job, devices).sha256()


def test_what_emulated_devices_complain_of_is_no_warning_to_anybody(caplog: pytest.LogCaptureFixture):
    emulated({"name": "fedavg"}, fleet={"availability": {"on": 20.0, "off": 10.0}, "dropout": 0.3})
    assert not caplog.records
    assert logging.getLogger("device_agent").level == logging.NOTSET


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"profiles": {"pi4": 5}}, "fleet.profiles name 5 devices"),
        ({"profiles": {"pi44": 6}}, "did you mean 'pi4'"),
        ({"dropuot": 0.1}, "did you mean 'dropout'"),
        ({"custom": {"x": {"sped": 1.0}}}, "unknown key 'fleet.custom.x.sped'"),
    ],
)
def test_a_wrong_fleet_section_is_named(section: Mapping[str, Any], words: str):
    with pytest.raises(ConfigError, match=words):
        prepared({"name": "fedavg"}, fleet=section)
