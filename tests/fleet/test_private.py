"""Private devices: their noise is their own, and what it cost is counted whatever became of the update."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fleets import Fleet, loop, run_file

from device_agent.durable.privacy_ledger import NAME, PrivacyLedger
from edgefl.base.errors import Interrupted, StoreError
from edgefl.base.vector import Layout
from edgefl.job.config.schema import RunFile
from edgefl.learn.privacy import Objective, Output, Price, objective_epsilon, output_epsilon
from edgefl.system.disk import FolderDisk
from tools.in_memory_broker import InMemoryBroker

PRICE = Price(Output(clip=5.0, sigma=0.5), 40, 0.1, Layout(("w",), ((2, 2),)))


def private(**privacy: Any) -> RunFile:
    mechanism = {"mechanism": "output", "clip": 5.0, "sigma": 0.01, **privacy}
    return run_file({"name": "upcycled", "privacy": mechanism}, rounds={"cohort": 4, "quorum": 4})


def ledgers(fleet: Fleet) -> dict[str, list[dict[str, Any]]]:
    """What each device has written down, one entry for each run of the job."""
    return {name: list(json.loads((fleet.folder / name / NAME).read_text()).values()) for name in fleet.data}


def played(run: RunFile, folder: Path) -> tuple[str, Fleet]:
    fleet = Fleet(run, folder, InMemoryBroker().client)
    fleet.start_all()
    run_state = fleet.coordinator().run()
    fleet.join()
    return run_state.sha256(), fleet


def test_seeded_noise_gives_the_model_of_the_loop(tmp_path: Path) -> None:
    run = private(noise="seeded")
    assert played(run, tmp_path)[0] == loop(run).sha256()


def test_noise_is_secret_unless_the_run_says_otherwise(tmp_path: Path) -> None:
    run = private()
    models = {played(run, tmp_path / str(i))[0] for i in range(2)} | {loop(run).sha256()}
    assert len(models) == 3
    assert loop(run).sha256() == loop(private(noise="seeded")).sha256()  # a simulation has no secrets


def test_every_odd_update_is_counted_with_its_price(tmp_path: Path) -> None:
    _, fleet = played(private(sigma=0.5), tmp_path)
    for name, (spent,) in ledgers(fleet).items():
        n = len(fleet.data[name])
        assert (spent["odd_updates"], spent["samples"], spent["noise"]) == (2, n, "secret")
        assert spent["epsilon"] == output_epsilon(2, 5.0, 0.5, 1e-3)
        assert spent["delta"] == 1e-3
        assert not {key for key in spent if "paper" in key or "published" in key}


def test_private_fedprox_pays_for_every_round(tmp_path: Path) -> None:
    mechanism = {"mechanism": "output", "clip": 5.0, "sigma": 0.5}
    run = run_file({"name": "fedprox", "privacy": mechanism}, rounds={"cohort": 4, "quorum": 4})
    _, fleet = played(run, tmp_path)
    assert {spent["odd_updates"] for (spent,) in ledgers(fleet).values()} == {4}


def test_seeded_noise_is_written_down_as_no_promise_at_all(tmp_path: Path) -> None:
    _, fleet = played(private(noise="seeded"), tmp_path)
    assert {(spent["noise"], spent["epsilon"]) for (spent,) in ledgers(fleet).values()} == {("seeded", None)}


def test_without_a_mechanism_nothing_is_counted(tmp_path: Path) -> None:
    _, fleet = played(run_file({"name": "upcycled"}), tmp_path)
    assert not any((tmp_path / name / NAME).exists() for name in fleet.data)


def test_an_update_that_is_refused_is_spent_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator.shell.guards.exploded", lambda *_: "too long")  # devices find nothing wrong
    fleet = Fleet(private(), tmp_path, InMemoryBroker().client)
    refused = set[str]()

    def stop_when_all_are(event: dict[str, Any]) -> None:
        if event["event"] == "refused":
            assert event["code"] == "update.norm"
            refused.add(event["device"])
        if refused == set(fleet.data):
            coordinator.stop()

    coordinator = fleet.coordinator(stop_when_all_are)
    fleet.start_all()
    with pytest.raises(Interrupted):
        coordinator.run()
    fleet.stop()
    fleet.join()
    assert all(spent["odd_updates"] >= 1 for (spent,) in ledgers(fleet).values())
    assert not list(tmp_path.rglob("*.state")), "a refused update leaves nothing else behind"


# ── the ledger ───────────────────────────────────────────────────────────────────────────────────────────────


def test_the_count_survives_a_restart_and_belongs_to_one_life_of_a_job(tmp_path: Path) -> None:
    ledger = PrivacyLedger(FolderDisk(tmp_path))
    assert ledger.state("job.one") == {}
    for run_key in ("job.one", "job.one", "job.two"):
        ledger.spend(run_key, PRICE)
    again = PrivacyLedger(FolderDisk(tmp_path))
    assert [again.events(run_key) for run_key in ("job.one", "job.two", "job.three")] == [2, 1, 0]
    assert again.state("job.one")["odd_updates"].dtype == np.int64


def test_samples_that_came_later_do_not_make_earlier_updates_cheaper(tmp_path: Path) -> None:
    ledger = PrivacyLedger(FolderDisk(tmp_path))
    for samples in (400, 200, 300):
        ledger.spend("job.one", Price(Objective(), samples, 0.1, Layout(("w", "b"), ((2, 3), (2,)))))
    assert ledger.runs["job.one"]["samples"] == 200
    assert ledger.runs["job.one"]["epsilon"] > objective_epsilon(3, 20, 2.0, 1.0, 200, 0.1)


def test_what_the_algorithm_is_told_is_what_the_ledger_says_and_not_what_was_committed(tmp_path: Path) -> None:
    fleet = Fleet(private(), tmp_path, InMemoryBroker().client)
    name = next(iter(fleet.data))
    run_key = "fleet.0123456789ab"
    for _ in range(3):  # of these no receipt ever came
        PrivacyLedger(FolderDisk(tmp_path / name)).spend(run_key, PRICE)
    states = fleet.agent(name).agent.states
    states.last = {run_key: {"odd_updates": np.array(1)}}
    assert int(states.of(run_key)["odd_updates"]) == 3


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"job.one": {}}', b'{"job.one": {"odd_updates": "many"}}'])
def test_a_damaged_ledger_is_never_begun_anew_unasked(damage: bytes, tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(damage)
    with pytest.raises(StoreError, match=r"privacy\.json: damaged, so what was spent is not known"):
        PrivacyLedger(FolderDisk(tmp_path))
