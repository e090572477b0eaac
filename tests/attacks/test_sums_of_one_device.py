"""A curious coordinator asks for sums, or for counts, before and after one row is added, and subtracts."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fleets import prepared, run_file

from device_agent.shell.own_samples import samples_of
from edgefl.job.config.agent_file import LocalData
from edgefl.job.run import reported_loss
from edgefl.job.run.work import ModelRef, Worker
from edgefl.learn.contract import Task
from edgefl.learn.data.dataset import Dataset
from edgefl.system import store
from edgefl.wire.broker import Broker

EDGEFL = [sys.executable, "-m", "edgefl"]
RUN = """
[run]
name = "{name}"
rounds = 1
folder = "{folder}/runs"
[task]
data = "none"
model = "softmax"
sample = [2]
classes = 2
{asked}
[rounds]
cohort = 1
quorum = 1
deadline = 60.0
[broker]
url = "{broker}"
fleet = "{folder.name}"
"""
AGENT = """
[agent]
id = "pi"
broker = "{broker}"
fleet = "{folder.name}"
folder = "{folder}/device"
[data]
source = "csv:{folder}/air.csv"
"""
ROW = "-40.25,1013.5,1\n"  # of interest: nothing else is as cold


def played(name: str, folder: Path, broker: Broker, asked: str) -> list[dict[str, Any]]:
    """What a run tells of the device, which has been switched off since the last one."""
    run, agent = folder / f"{name}.toml", folder / "agent.toml"
    run.write_text(RUN.format(name=name, folder=folder, broker=broker.address, asked=asked))
    agent.write_text(AGENT.format(folder=folder, broker=broker.address))
    with (folder / "agent.log").open("ab") as log:
        device = subprocess.Popen([*EDGEFL, "agent", "start", str(agent), "--once"], stdout=log, stderr=log)
        try:
            command = [*EDGEFL, "coordinator", "start", str(run), "--json", "--no-rehearse"]
            told = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
            assert told.returncode == 0, told.stderr + (folder / "agent.log").read_text()
        finally:
            device.terminate()
            device.wait(60)
    return list(map(json.loads, told.stdout.splitlines()))


def described(name: str, folder: Path, broker: Broker, weights: str = '"balanced"') -> dict[str, Any]:
    """What a run learns of the device's data."""
    asked = f'normalise = "fleet"\nclass_weights = {weights}'
    (fact,) = [fact for fact in played(name, folder, broker, asked) if fact["event"] == "described"]
    return {key: fact[key] for key in ("devices", "samples", "mean", "deviation", "class_counts")}


def evaluated(name: str, folder: Path, broker: Broker) -> dict[str, Any]:
    """What a run learns of the model before training, whose counts tell how many samples of each class there are."""
    asked = '[evaluation]\non = "devices"\nleast = 1\nper_device = true'
    told = [fact for fact in played(name, folder, broker, asked) if fact["event"] == "evaluated"]
    return {key: told[0][key] for key in ("round", "devices", "samples", "loss", "confusion", "silent")}


@pytest.mark.night
def test_sums_of_two_runs_do_not_give_the_row_that_was_added_between(mosquitto: Broker, tmp_path: Path) -> None:
    rng, path = np.random.default_rng(0), tmp_path / "air.csv"
    path.write_text(
        "".join(f"{t:.2f},{p:.1f},{i % 2}\n" for i, (t, p) in enumerate(rng.normal((20, 1013), 2, (60, 2))))
    )
    before = described("first", tmp_path, mosquitto)
    assert before["devices"] == 1
    with path.open("a") as file:
        file.write(ROW)
    assert described("second", tmp_path, mosquitto) == before, "to the last digit, label and number of samples too"
    silent = described("third", tmp_path, mosquitto, weights='{ "0" = 2.0 }')
    assert silent["mean"] == before["mean"], "nor does a run that asks for less learn more"
    with path.open("a") as file:
        file.write(ROW * 1 + "".join(f"{t:.2f},1000.0,0\n" for t in rng.normal(20, 2, 12)))
    after = described("fourth", tmp_path, mosquitto)
    assert after["samples"] > before["samples"], "when enough is different, it is described"
    assert after["mean"] != before["mean"]


def held_back(path: Path) -> int:
    aside = samples_of(LocalData(source=f"csv:{path}")).held_back
    assert aside is not None
    return len(aside)


@pytest.mark.night
def test_counts_of_two_runs_do_not_give_the_label_of_the_row_that_was_added_between(
    mosquitto: Broker, tmp_path: Path
) -> None:
    rng, path = np.random.default_rng(0), tmp_path / "air.csv"
    path.write_text("".join(f"{t:.2f},{p:.2f},{i % 2}\n" for i, (t, p) in enumerate(rng.normal(0, 1, (100, 2)))))
    before, samples = evaluated("first", tmp_path, mosquitto), held_back(path)
    assert (before["devices"], before["samples"]) == (1, samples)
    while held_back(path) == samples:
        with path.open("a") as file:
            file.write(ROW)
    assert held_back(path) == samples + 1
    assert evaluated("second", tmp_path, mosquitto) == before, "the same samples, of the same classes, with that loss"
    with path.open("a") as file:
        file.write("".join(f"{t:.2f},0.0,0\n" for t in rng.normal(0, 1, 60)))
    assert evaluated("third", tmp_path, mosquitto)["samples"] == held_back(path), "enough is different"


def label_counts(name: str, folder: Path, broker: Broker) -> list[int]:
    """What a run with Flashback learns of the labels that the device trains on."""
    played(name, folder, broker, '[algorithm]\nname = "flashback"\nsides = "device"')
    (state,) = (folder / "runs" / name).glob("state-*.safetensors")
    (counts,) = (array for key, array in store.load(state)[0].items() if key.endswith("distill/counts"))
    return [int(count) for count in counts[0]]


def test_what_a_worker_tells_of_its_training_data_leaves_the_same_rows_out() -> None:
    rng = np.random.default_rng(0)
    data = Dataset(rng.normal(size=(30, 20)).astype(np.float32), rng.integers(0, 10, 30), 10)
    job, _ = prepared(run_file({"name": "flashback"}, task={"model": "softmax"}))
    told = []
    for left_out in ((), (3, 4), None):
        about = "job", "d", job.algorithm, job.device_model, data, job.loss, job.run.transforms, 3
        worker = Worker(*about, left_out=left_out)
        result = worker.result(Task(1, job.start, extra=reported_loss.asked("mean")), ModelRef("run", "model"), {})
        told.append((result.update.extra["counts"].tolist(), result.update.loss is None))
    counts = np.bincount(data.y, minlength=10)
    less = counts - np.bincount(data.y[[3, 4]], minlength=10)
    assert told == [(counts.tolist(), False), (less.tolist(), False), ([0] * 10, True)]


@pytest.mark.night
def test_label_counts_of_two_runs_do_not_give_the_label_that_was_added_between(
    mosquitto: Broker, tmp_path: Path
) -> None:
    rng, path = np.random.default_rng(0), tmp_path / "air.csv"
    path.write_text("".join(f"{t:.2f},{p:.2f},{i % 2}\n" for i, (t, p) in enumerate(rng.normal(0, 1, (100, 2)))))
    before = label_counts("first", tmp_path, mosquitto)
    assert sum(before) == 80
    with path.open("a") as file:
        file.write(ROW * 4)
    assert label_counts("second", tmp_path, mosquitto) == before
    with path.open("a") as file:
        file.write(ROW * 20)
    after = label_counts("third", tmp_path, mosquitto)
    assert after[0] == before[0]
    assert after[1] >= before[1] + 10


def test_whatever_a_run_asks_for_a_few_samples_are_not_counted(mosquitto: Broker, tmp_path: Path) -> None:
    (tmp_path / "air.csv").write_text("".join(f"{t}.5,0.1,{t % 2}\n" for t in range(30)))
    assert 0 < held_back(tmp_path / "air.csv") < 10
    told = evaluated("few", tmp_path, mosquitto)
    assert (told["devices"], told["samples"], told["silent"]) == (0, 0, 1)
