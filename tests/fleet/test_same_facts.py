"""Every driver of an undisturbed run tells the same facts, except what reads a clock, and ends with the same model."""

import socket
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from fleets import Fleet, prepared, run_file

from edgefl.base.events import Connected, Done, Fact, Joined, Lost, Started, from_json, timeless
from edgefl.base.report_numbers import LastReports
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.learn.algorithms.registry import algorithm_registry
from edgefl.sim.emulator import emulate
from edgefl.sim.loop import simulate
from edgefl.wire.broker import Broker
from edgefl.wire.mqtt import MqttTransport
from edgefl.wire.transport import Transport
from tools.in_memory_broker import InMemoryBroker

TORCH = {"moon", "fedmlb"}  # they ask the back-end for features and blocks
PARTS = {"fedper", "fedrep", "fedbn"}  # a network of one layer has no other part, and no norm
# Their messages are those of fedavg and ditto: what is new in them is in numpy, on one side.
NO_OTHER_MESSAGES = {*PARTS, "fedadam", "fedyogi", "fedadagrad", "fedasync", "pfedme"}
NETWORK = (Started, Connected, Lost)  # told where there is one, which the loop does without
ELSEWHERE = {"host": "", "arch": "", "memory_mb": None}  # what devices say of their machine: simulated ones have none
Connect = Callable[[str], Transport]


def small(name: str, **more: Any) -> RunFile:
    task = {"backend": "torch", "model": "mlp"} if name in TORCH else {}
    part = {"private": ["*.bias"]} if name in PARTS else {}
    return run_file({"name": name, "batches": 2, **part}, run={"rounds": 3}, task=task, **more)


def looped(run: RunFile) -> tuple[str, list[Fact]]:
    told: list[Fact] = []
    job, held = prepared(run)
    run_state = simulate(job, dict(zip(jobs.device_names(len(held.devices)), held.devices, strict=True)), told.append)
    return run_state.sha256(), told


def emulated(run: RunFile) -> tuple[str, list[Fact]]:
    told: list[Fact] = []
    job, held = prepared(run)
    run_state = emulate(job, dict(zip(jobs.device_names(len(held.devices)), held.devices, strict=True)), told.append)
    return run_state.sha256(), told


def served(run: RunFile, folder: Path, connect: Connect) -> tuple[str, list[Fact]]:
    """By a coordinator and agents with threads, queues and clocks of their own."""
    told: list[Fact] = []
    fleet = Fleet(run, folder, connect)
    fleet.start_all()
    run_state = fleet.coordinator(lambda fact: told.append(from_json(fact))).run()
    fleet.join()
    return run_state.sha256(), told


def story(told: list[Fact]) -> list[dict[str, Any]]:
    """What lasts, without clocks, network and hosts, by round, kind and device."""
    lasting = [fact for fact in told if fact.lasting and not isinstance(fact, NETWORK)]
    plain = [timeless(fact) | (ELSEWHERE if isinstance(fact, Joined) else {}) for fact in lasting]
    return sorted(plain, key=lambda fact: (fact.get("round", 0), fact["event"], str(fact.get("device"))))


def network(told: list[Fact]) -> list[type[Fact]]:
    """What the network did until the run was done; then devices leave in their own time, and are lost or not.

    Nobody has started: the command tells that, with an address and a key which are different every time.
    """
    return [
        type(fact) for fact in takewhile(lambda fact: not isinstance(fact, Done), told) if isinstance(fact, NETWORK)
    ]


def dropped(told: list[Fact]) -> list[Fact]:
    """The reports that a reader takes for told before: none, because the numbers of each kind grow."""
    known, again = LastReports(), list[Fact]()
    for fact in told:
        again += [fact] if known.has(fact) else []
        known.add(fact)
    return again


def hosts(told: list[Fact]) -> set[str]:
    return {fact.host for fact in told if isinstance(fact, Joined)}


def assert_same(run: RunFile, folder: Path, connect: Connect | None = None) -> None:
    model, facts = looped(run)
    expected = story(facts)
    assert (network(facts), hosts(facts), dropped(facts)) == ([], {""}, [])
    drivers = ((emulated(run), ""), (served(run, folder, connect or InMemoryBroker().client), socket.gethostname()))
    for (other, told), host in drivers:
        assert other == model
        assert (story(told), dropped(told)) == (expected, [])
        assert (network(told), hosts(told)) == ([Connected], {host}), "one connection, and nobody was lost"


@pytest.mark.parametrize("name", sorted(algorithm_registry()))
def test_every_algorithm_gives_the_same_model_and_the_same_facts_in_every_driver(name: str, tmp_path: Path) -> None:
    assert_same(small(name), tmp_path)


@pytest.mark.night
@pytest.mark.parametrize("name", sorted(set(algorithm_registry()) - NO_OTHER_MESSAGES))
def test_so_does_each_over_mosquitto(name: str, mosquitto: Broker, tmp_path: Path) -> None:
    assert_same(small(name), tmp_path, lambda client: MqttTransport(mosquitto.address, client))


def test_so_does_a_run_that_looks_where_it_forgets_and_sends_small_numbers(tmp_path: Path) -> None:
    run = small("fedgc", wire={"codec": "float16", "compress": True})
    assert_same(run.model_copy(update={"run": run.run.model_copy(update={"forgetting": True})}), tmp_path)


JUDGED = {"on": "devices", "least": 1, "per_device": True}


def judged(name: str, evaluation: dict[str, Any], **more: Any) -> RunFile:
    """A run whose model is evaluated on devices."""
    return small(name, evaluation={**JUDGED, **evaluation}, **more)


@pytest.mark.parametrize(
    ("name", "evaluation"),
    [
        ("fedavg", {}),
        ("fedgc", {"on": "both"}),  # looks back
        ("upcycled", {"every": 2}),  # has rounds that need nobody
        ("scaffold", {"least": 1000}),  # nobody has so much
        ("ditto", {}),  # each device judges a model of its own
        ("fedper", {"on": "both"}),  # and so here, where the coordinator judges what they share
    ],
)
def test_so_does_one_whose_devices_evaluate_it(name: str, evaluation: dict[str, Any], tmp_path: Path) -> None:
    assert_same(judged(name, evaluation), tmp_path)


def test_so_does_that_over_mosquitto(mosquitto: Broker, tmp_path: Path) -> None:
    run = judged("fedprox", {}, wire={"codec": "int8"})
    assert_same(run, tmp_path, lambda client: MqttTransport(mosquitto.address, client))


@pytest.mark.parametrize("more", [{"target_accuracy": 0.3}, {"target_loss": 1.9}, {}])
def test_so_does_one_that_its_devices_find_good_enough(more: dict[str, Any], tmp_path: Path) -> None:
    run = judged("fedavg", {} if more else {"patience": 1})
    run = run.model_copy(update={"run": run.run.model_copy(update={"rounds": 50, **more})})
    _, facts = looped(run)
    assert next(fact for fact in facts if isinstance(fact, Done)).rounds < 50
    assert_same(run, tmp_path)


def test_so_does_one_that_reaches_its_target_before_its_last_round(tmp_path: Path) -> None:
    run = small("fedavg")
    target = run.run.model_copy(update={"rounds": 50, "target_accuracy": 0.3})
    assert_same(run.model_copy(update={"run": target}), tmp_path)


STATISTICS = {"normalise": "fleet", "class_weights": "balanced"}


@pytest.mark.night
@pytest.mark.parametrize("name", sorted(set(algorithm_registry()) - TORCH - NO_OTHER_MESSAGES))
def test_so_does_one_whose_devices_describe_their_data_first(name: str, tmp_path: Path) -> None:
    run = small(name)
    assert_same(run.model_copy(update={"task": run.task.model_copy(update=STATISTICS)}), tmp_path)


def test_so_does_that_with_evaluation_on_devices_over_mosquitto(mosquitto: Broker, tmp_path: Path) -> None:
    run = judged("fedgc", {"on": "both"}, wire={"codec": "int8"})
    run = run.model_copy(update={"task": run.task.model_copy(update=STATISTICS)})
    assert_same(run, tmp_path, lambda client: MqttTransport(mosquitto.address, client))
