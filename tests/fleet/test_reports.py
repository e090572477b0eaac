"""A round is told in the same words by the loop, the emulator and the coordinator."""

from pathlib import Path
from typing import Any

import pytest
from facts import in_json
from fleets import Fleet, prepared, run_file

from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.sim.emulator import emulate
from edgefl.sim.loop import simulate
from tools.in_memory_broker import InMemoryBroker

Reports = list[dict[str, Any]]


def everywhere(run: RunFile, folder: Path) -> tuple[Reports, Reports, Reports]:
    """The rounds as the loop tells them, the emulator, and a coordinator with agents."""
    job, held = prepared(run)
    devices = dict(zip(jobs.device_names(len(held.devices)), held.devices, strict=True))
    looped, emulated, real = Reports(), Reports(), Reports()
    simulate(job, devices, in_json(looped.append))
    emulate(job, devices, in_json(emulated.append))
    fleet = Fleet(run, folder, InMemoryBroker().client)
    fleet.start_all()
    fleet.coordinator(real.append).run()
    fleet.join()
    assert real[-1]["event"] == "done"  # however long somebody looks, the end is told last
    return tuple([one for one in told if one["event"] == "round"] for told in (looped, emulated, real))


@pytest.mark.parametrize("name", ["fedgc", "gradma", "flashback", "upcycled"])
def test_counters_and_forgetting_are_the_same_in_every_driver(name: str, tmp_path: Path):
    looped, *others = everywhere(run_file({"name": name}, run={"forgetting": True}), tmp_path)
    for told in others:
        for key in ("round", "stages", "updates", "devices", "local_forgetting", "aggregation_forgetting"):
            assert [one[key] for one in told] == [one[key] for one in looped], key
    trained = [one for one in looped if one["devices"]]
    assert all(0 <= one["local_forgetting"] <= 1 and 0 <= one["aggregation_forgetting"] <= 1 for one in trained)
    assert any(one["local_forgetting"] for one in trained)
    assert all(one["local_forgetting"] is None for one in looped if not one["devices"])


def test_what_the_papers_warn_of_is_in_the_report(tmp_path: Path):
    gradma = everywhere(run_file({"name": "gradma"}), tmp_path)[2][-1]
    assert set(gradma["stages"]["memory"]) == {"unsolved", "largest", "shrunk"}
    assert 0 < gradma["stages"]["memory"]["shrunk"] <= 1


def test_tensors_that_fedgc_had_to_push_are_counted(tmp_path: Path):
    told = everywhere(run_file({"name": "fedgc", "margin": 100.0}), tmp_path)[2]
    assert told[0]["updates"] == {"corrected": 0}  # nothing to agree with yet
    assert told[-1]["updates"]["corrected"] > 0
    assert "infeasible" in told[-1]["stages"]["sgc"]


def test_forgetting_is_not_told_unless_asked_for(tmp_path: Path):
    assert all(
        one["local_forgetting"] is None for told in everywhere(run_file({"name": "fedavg"}), tmp_path) for one in told
    )
