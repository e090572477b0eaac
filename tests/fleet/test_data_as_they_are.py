"""Devices whose data stand in whatever they were logged to: real processes, to a model that knows its classes."""

import csv
import json
import sqlite3
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from edgefl.job.config.agent_file import AgentFile
from edgefl.job.config.reader import load
from edgefl.job.run.local_data import local_source
from edgefl.wire.broker import Broker

EDGEFL = [sys.executable, "-m", "edgefl"]
WITHOUT_TORCH = [
    sys.executable,
    "-c",
    "import sys; sys.modules['torch'] = None; from edgefl.cli.app import main; main()",
]
CLASSES = ("rest", "shake")
WINDOW = 16


def recording(seed: int, seconds: int = 600) -> list[tuple[datetime, float, float, str]]:
    """A logger's rows, one a second, in raw units: hectopascal and millivolt. It is shaken for a minute, then rests."""
    rng = np.random.default_rng(seed)
    begin, rows = datetime(2026, 11, 1, 10), []
    for i in range(seconds):
        label = CLASSES[i // 60 % 2]
        swing = 40.0 * (label == "shake") * (-1) ** i
        at = begin + timedelta(seconds=i + (3600 if i >= 300 else 0))  # an hour is missing in the middle
        rows.append((at, 1013.25 + rng.normal(), 300 + swing + rng.normal(), label))
    return rows


def as_csv(path: Path) -> dict[str, object]:
    with path.open("w", newline="", encoding="cp1252") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerow(["Zeit", "Luftdruck [hPa]", "Weg [mV]", "Zustand", "Gerät"])
        for i, (at, pressure, path_mv, label) in enumerate(recording(1)):
            numbers = [f"{value:.3f}".replace(".", ",") for value in (pressure, path_mv)]
            writer.writerow(
                [at.strftime("%d.%m.%Y %H:%M:%S"), "" if i % 97 == 5 else numbers[0], numbers[1], label, "1ä"]
            )
    columns = {"columns": ["Luftdruck [hPa]", "Weg [mV]"], "label": "Zustand", "time": "Zeit"}
    return {"source": f"csv:{path}", "encoding": "cp1252", "empty": "last", **columns}


def as_sqlite(path: Path) -> dict[str, object]:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE log (at TEXT, hpa REAL, mv REAL, state TEXT)")
        rows = [(at.isoformat(), pressure, mv, label) for at, pressure, mv, label in recording(2)]
        connection.executemany("INSERT INTO log VALUES (?, ?, ?, ?)", rows)
    connection.close()
    query = "SELECT at, hpa, mv, state AS label FROM log"
    return {"source": f"sqlite:{path}", "query": query, "time": "at"}


def as_parquet(path: Path) -> dict[str, object]:
    pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow (edgefl[parquet])")
    parquet = pytest.importorskip("pyarrow.parquet")
    at, hpa, mv, label = zip(*recording(3), strict=True)
    columns = {"at": list(at), "hpa": list(hpa), "mv": list(mv), "label": list(label)}
    parquet.write_table(pyarrow.table(columns), path)
    return {"source": f"parquet:{path}"}


def toml(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def started(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)


def run_fleet(tmp_path: Path, broker: Broker, run: str, data: list[dict[str, object]]) -> list[dict[str, object]]:
    """A coordinator and an agent for each of these [data], all processes of their own; what the coordinator told."""
    fleet = tmp_path.name.replace("_", "-")
    there = f'[broker]\nurl = "{broker.address}"\nfleet = "{fleet}"\n'
    rounds = f"[rounds]\ncohort = {len(data)}\nquorum = {len(data)}\n"
    (tmp_path / "run.toml").write_text(run + there + rounds, encoding="utf-8")
    processes = []
    for i, keys in enumerate(data):
        file = tmp_path / f"agent-{i}.toml"
        about = f'[agent]\nid = "pi-{i}"\nbroker = "{broker.address}"\nfleet = "{fleet}"\nfolder = "{tmp_path}"\n'
        own = "".join(f"{key} = {toml(value)}\n" for key, value in keys.items())
        file.write_text(f"{about}[data]\n{own}", encoding="utf-8")
        program = WITHOUT_TORCH if i == 0 else EDGEFL
        processes.append(started([*program, "agent", "start", str(file), "--once"], tmp_path / f"agent-{i}.log"))
    command = [*EDGEFL, "coordinator", "start", str(tmp_path / "run.toml"), "--json"]
    processes.append(started(command, tmp_path / "coordinator.log"))
    try:
        codes = [process.wait(150) for process in processes]
    finally:
        for process in processes:
            process.kill()
    logs = {path.name: path.read_text(encoding="utf-8", errors="replace")[-3000:] for path in tmp_path.glob("*.log")}
    assert codes == [0] * len(processes), logs
    lines = (tmp_path / "coordinator.log").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def test_csv_sqlite_and_parquet_devices_learn_one_model_that_knows_its_classes(
    mosquitto: Broker, tmp_path: Path
) -> None:
    data = [as_csv(tmp_path / "log.csv"), as_sqlite(tmp_path / "log.db"), as_parquet(tmp_path / "log.parquet")]
    windows = {"window": WINDOW, "stride": 4, "window_label": "majority"}
    run = f"""
[run]
name = "shaken"
rounds = 6
folder = "{tmp_path / "runs"}"
[task]
data = "none"
sample = [2, {WINDOW}]
classes = {toml(list(CLASSES))}
model = "sensor_cnn"
normalise = "fleet"
class_weights = "balanced"
[evaluation]
on = "devices"
[algorithm]
name = "fedavg"
lr = 0.05
epochs = 2
"""
    told = run_fleet(tmp_path, mosquitto, run, [{**keys, **windows} for keys in data])
    done = told[-1]
    assert (done["event"], done["class_names"]) == ("done", list(CLASSES))
    (described,) = [fact for fact in told if fact["event"] == "described"]
    assert described["devices"] == 3
    assert described["mean"] == pytest.approx([1013.25, 300.0], abs=1.0)
    assert done["accuracy"] > 0.9  # on data that the devices held back, in raw units
    model = tmp_path / "runs" / "shaken" / "model.onnx"
    session = onnxruntime.InferenceSession(model)
    card = session.get_modelmeta().custom_metadata_map
    assert json.loads(card["class_names"]) == list(CLASSES)
    assert card["input_units"].startswith("raw")
    hits = samples = 0
    for file in sorted(tmp_path.glob("agent-*.toml")):  # in plain onnxruntime, on what the agents read
        held_back = local_source(load(AgentFile, file).data).test
        (z,) = session.run(["logits"], {"x": held_back.x})
        hits, samples = hits + int((z.argmax(axis=1) == held_back.y).sum()), samples + len(held_back)
    assert hits / samples == pytest.approx(done["accuracy"], abs=1e-9)
    said = (tmp_path / "agent-0.log").read_text(encoding="utf-8", errors="replace")
    assert "data 600 rows, columns Luftdruck [hPa], Weg [mV]" in said
    assert "ordered by 'Zeit', 1 gap" in said


@pytest.mark.night
def test_folders_of_images_on_each_device_give_a_model_that_names_them(mosquitto: Broker, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="needs Pillow (edgefl[images])")
    rng = np.random.default_rng(0)
    held = {
        "pi-0": ("bright", "dark"),
        "pi-1": ("dark", "striped"),
        "pi-2": ("bright", "striped"),
    }  # none has all three
    for device, classes in held.items():
        for label in classes:
            folder = tmp_path / "pictures" / device / label
            folder.mkdir(parents=True)
            for i in range(24):
                grey = {"bright": 200, "dark": 40, "striped": 120}[label] + rng.normal(0, 10, (12, 10))
                grey = grey + (70 * (-1) ** np.arange(10) if label == "striped" else 0)
                picture = image.fromarray(np.clip(grey, 0, 255).astype(np.uint8))
                picture.save(folder / f"{i:02d}.{'png' if i % 2 else 'jpg'}")
    data = [
        {"source": f"images:{tmp_path / 'pictures' / device}", "size": [8, 8], "colour": False}
        for device in sorted(held)
    ]
    run = f"""
[run]
name = "pictures"
rounds = 40
folder = "{tmp_path / "runs"}"
[task]
data = "none"
sample = [1, 8, 8]
classes = ["bright", "dark", "striped"]
model = "mlp"
[algorithm]
name = "fedavg"
lr = 0.1
epochs = 4
"""
    told = run_fleet(tmp_path, mosquitto, run, data)
    assert told[-1]["class_names"] == ["bright", "dark", "striped"]
    model = tmp_path / "runs" / "pictures" / "model.onnx"
    for i in range(3):  # each device by the names of its own folders, which are not the run's numbers
        agent = str(tmp_path / f"agent-{i}.toml")
        out = subprocess.run(
            [*EDGEFL, "agent", "evaluate", agent, str(model), "--json"], check=True, capture_output=True
        )
        parts = [json.loads(line) for line in out.stdout.splitlines()]
        assert min(part["accuracy"] for part in parts) > 0.9
