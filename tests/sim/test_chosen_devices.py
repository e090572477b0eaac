"""A simulated run asks the devices that `rounds.where` means, by the labels of its run file, in every driver."""

from collections.abc import Mapping
from typing import Any

import pytest

from edgefl.base.errors import ConfigError
from edgefl.base.events import Asked, Done, Excluded, Fact, Joined, Labelled, timeless
from edgefl.base.version import __version__
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.job.run.job import Job
from edgefl.lab.planning.demand import demand
from edgefl.learn.data.dataset import Dataset
from edgefl.sim.emulator import emulate
from edgefl.sim.loop import simulate
from edgefl.sim.rehearsal import rehearse

NORTH = {name: {"site": "north"} for name in ("device-00", "device-02", "device-03", "device-05")}

# One pace and no distance, in powers of two: in buffered rounds the loop knows no others.
EXACT = {
    "custom": {"fast": {"speed": 1.0, "up": 1e30, "down": 1e30, "latency": 0.0, "jitter": 0.0}},
    "profiles": {"fast": 6},
    "ms_per_step": 125.0,
}


def run_file(where: str, **more: Mapping[str, Any]) -> RunFile:
    """Six devices, four of them in the north."""
    table: dict[str, Any] = {
        "run": {"name": "chosen", "rounds": 3, "seed": 5},
        "task": {
            "data": "synthetic",
            "model": "softmax",
            "backend": "torch",
            "public": 0.1,
            "partition": {"kind": "dirichlet", "omega": 0.5, "devices": 6},
        },
        "algorithm": {"name": "fedavg", "batch": 16, "epochs": 1},
        "rounds": {"where": where, "deadline": 10.0},
        "fleet": {"labels": NORTH},
    }
    for section, keys in more.items():
        table[section] = {**table.get(section, {}), **keys}
    return parse(RunFile, table, "test", environment={})


def prepared(run: RunFile) -> tuple[Job, dict[str, Dataset]]:
    job, held = jobs.prepare(run)
    return job, dict(zip(jobs.device_names(len(held.devices)), held.devices, strict=True))


def asked(told: list[Fact]) -> set[str]:
    return {name for fact in told if isinstance(fact, Asked) for name in fact.devices}


def story(told: list[Fact]) -> list[dict[str, Any]]:
    kinds = (Joined, Labelled, Excluded)
    plain = [timeless(fact) for fact in told if isinstance(fact, kinds)]
    return sorted(plain, key=lambda fact: (fact.get("round", 0), fact["event"], str(fact.get("device"))))


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"rounds": {"cohort": 2}},
        {"selection": {"name": "power_of_choice"}, "rounds": {"cohort": 2}},
        {"algorithm": {"name": "scaffold", "lr": 0.1, "momentum": 0.0}},
        {"rounds": {"mode": "buffered", "concurrency": 3, "buffer": 2}, "fleet": EXACT},
        {"evaluation": {"on": "devices", "least": 1}},
    ],
    ids=["all", "two", "choosy", "population", "buffered", "judged"],
)
def test_loop_and_emulated_fleet_ask_the_same_devices_and_end_with_the_same_model(more: dict[str, Any]):
    job, devices = prepared(run_file("site == 'north'", **more))
    looped: list[Fact] = []
    on_clock: list[Fact] = []
    assert simulate(job, devices, looped.append).sha256() == emulate(job, devices, on_clock.append).sha256()
    assert asked(looped) == asked(on_clock) <= set(NORTH)
    assert story(looped) == story(on_clock)
    left = {fact.device: fact.reason for fact in looped if isinstance(fact, Excluded)}
    assert left == {"device-01": "it has no 'site'", "device-04": "it has no 'site'"}


def test_it_is_the_model_of_a_fleet_that_has_no_other_devices():
    job, devices = prepared(run_file("site == 'north'"))
    alone, _ = prepared(
        run_file("site == 'north'", rounds={"where": "device != 'device-99'", "cohort": 4, "quorum": 4})
    )
    few = {name: devices[name] for name in NORTH}
    assert simulate(job, devices).sha256() == simulate(alone, few).sha256()


def test_a_cohort_unless_said_is_all_that_are_meant():
    run = run_file("site == 'north'")
    assert (run.cohort, run.quorum, run.start_with, run.parts) == (4, 4, 4, 4)
    assert run_file("device == 'device-01'").cohort == 1
    assert run_file("site == 'north' and samples > 5", rounds={"cohort": 3}).parts is None
    assert run_file("site == 'north' and samples > 5", rounds={"cohort": 3}).start_with is None


def test_a_run_without_where_is_for_all():
    table = run_file("site == 'north'").model_dump(by_alias=True, mode="json", exclude={"algorithm", "devices"})
    table["rounds"]["where"] = None
    plain = RunFile.model_validate(table)
    assert (plain.where, plain.parts, plain.cohort, plain.start_with) == (None, 6, 6, 6)


@pytest.mark.parametrize(
    ("where", "more", "complaint"),
    [
        ("site = 'north'", {}, "rounds.where: one `=`, at character 6"),
        ("site == 'west'", {}, "rounds.where = \"site == 'west'\" means none of the 6 devices"),
        (
            "samples > 5",
            {},
            r"rounds.cohort: say how many devices a round asks \(rounds.where asks some of them only\)",
        ),
        (
            "site == 'north'",
            {"rounds": {"cohort": 5}},
            "is larger than the number of devices that rounds.where means = 4",
        ),
        (
            "site == 'north'",
            {"rounds": {"start_with": 5}},
            "rounds.start_with = 5 is larger than the number of devices",
        ),
        (
            "site == 'north'",
            {"fleet": {"labels": {"device-6": {"site": "a"}}}},
            "there is no such device; did you mean",
        ),
        ("site == 'north'", {"fleet": {"labels": {"device-01": {"samples": "a"}}}}, "known of every device"),
        ("site == 'north'", {"fleet": {"custom": {"x": {"labels": {"a b": "c"}}}}}, "cannot be a label"),
    ],
)
def test_what_cannot_be_meant_is_refused_when_the_file_is_read(where: str, more: dict[str, Any], complaint: str):
    with pytest.raises(ConfigError, match=complaint):
        run_file(where, **more)


@pytest.mark.parametrize(
    ("where", "complaint"),
    [
        ("sit == 'north' and samples > 0", "rounds.where: no device has a label 'sit'; did you mean 'site'"),
        (
            "site == 'north' and samples > 100000",
            "rounds.where means 0 of 6 devices, and a round needs rounds.quorum = 2",
        ),
        ("memory_mb >= 900", "of 'device-00', for example, it has no 'memory_mb'"),
    ],
)
def test_what_only_the_devices_know_is_refused_before_the_first_round(where: str, complaint: str):
    job, devices = prepared(run_file(where, rounds={"cohort": 2, "quorum": 2}))
    for play in (simulate, emulate):
        with pytest.raises(ConfigError, match=complaint):
            play(job, devices)
    with pytest.raises(ConfigError, match=complaint):
        demand(job.run, {}, None)


def test_a_profile_gives_labels_and_says_what_its_devices_say_of_themselves():
    kinds = {
        "profiles": {"pi3": 2, "field": 4},
        "custom": {"field": {"arch": "armv7l", "memory_mb": 480, "labels": {"site": "south", "owner": "ada"}}},
        "labels": {"device-01": {"site": "attic"}},
    }
    where = "memory_mb < 900 and owner == 'ada' and arch == 'armv7l'"
    job, devices = prepared(run_file(where, fleet=kinds, rounds={"cohort": 2, "quorum": 2}))
    told: list[Fact] = []
    emulate(job, devices, told.append)
    says = {fact.device: (fact.arch, fact.memory_mb, fact.version) for fact in told if isinstance(fact, Joined)}
    field = {name for name, about in says.items() if about == ("armv7l", 480, __version__)}
    assert len(field) == 4
    assert asked(told) <= field
    (labelled,) = (fact for fact in told if isinstance(fact, Labelled))
    assert all(labelled.labels[name]["owner"] == "ada" for name in field)
    assert labelled.labels["device-01"]["site"] == "attic"


def test_plan_and_rehearsal_take_a_run_that_asks_some():
    run = run_file("site == 'north'", fleet={"profiles": {"pi3": 6}})
    assert demand(run, {}, None).cohort == 4
    assert rehearse(run).run.cohort == 4


def test_an_emulated_fleet_whose_meant_devices_come_and_go_reaches_its_end():
    hours = {"availability": {"on": 50.0, "off": 20.0}}
    job, devices = prepared(run_file("site == 'north'", fleet=hours, rounds={"cohort": 3, "quorum": 2}))
    told: list[Fact] = []
    emulate(job, devices, told.append)
    assert isinstance(told[-1], Done)
    assert asked(told) <= set(NORTH)
