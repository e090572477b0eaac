"""A checkpoint becomes an ONNX file that says the same, and a device can judge and use it without torch."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from coordinator.durable import checkpoint
from coordinator.durable.checkpoint import Checkpoint
from coordinator.shell.exporting import Exported, export_checkpoint, read
from coordinator.start import _export
from edgefl import __version__
from edgefl.base.scores import COMMON
from edgefl.cli.app import main
from edgefl.cli.export import told
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.learn.data.catalog import load
from edgefl.sim.loop import simulate
from edgefl.system import store
from edgefl.system.disk import FolderDisk

TABLE = {
    "run": {"name": "trial", "rounds": 2, "seed": 1},
    "task": {"data": "digits", "model": "mlp", "partition": {"kind": "iid", "devices": 2}},
    "algorithm": {"name": "fedavg", "lr": 0.2},
}
Edgefl = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "trial"
    folder.mkdir()
    job, held = jobs.prepare(parse(RunFile, TABLE, "test", environment={}))
    run_state = simulate(job, dict(zip(jobs.device_names(2), held.devices, strict=True)))
    checkpoint.save(FolderDisk(folder), job, Checkpoint(run_state, (), 0, 0))
    return folder


@pytest.fixture(scope="module")
def models(run_folder: Path) -> dict[str, Exported]:
    """The run's model as it is, and with int8 weights; most of these tests' time is making them."""
    return {
        kind: export_checkpoint(run_folder, run_folder / f"{kind}.onnx", int8=kind == "int8")
        for kind in ("float32", "int8")
    }


@pytest.fixture
def edgefl(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Edgefl:
    """Run a command in a fresh folder: its exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    Path("agent.toml").write_text("[agent]\nid = 'pi-01'\n[data]\nsource = 'digits'\n")

    def run(*words: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["edgefl", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        captured = capsys.readouterr()
        return int(end.value.code or 0), captured.out.strip(), captured.err.strip()

    return run


def test_a_run_folder_becomes_a_file_that_is_as_good_as_the_model(edgefl: Edgefl, run_folder: Path) -> None:
    code, out, _ = edgefl("export", run_folder, "model.onnx", "--json")
    report = json.loads(out)
    assert code == 0
    assert report["parity"] < 1e-5
    assert report["accuracy"] == report["exported_accuracy"] > 0.5
    assert (report["round"], report["bytes"]) == (2, Path("model.onnx").stat().st_size)
    onnx.checker.check_model("model.onnx", full_check=True)


def test_int8_is_a_quarter_of_the_size_and_hardly_worse(models: dict[str, Exported]) -> None:
    small = models["int8"]
    assert small.bytes < 0.4 * small.float_bytes
    assert 1e-5 < small.gap < 0.1
    assert abs((small.scores["accuracy"] or 0) - (small.exported_scores["accuracy"] or 1)) < 0.02
    assert {opset.domain for opset in onnx.load(small.path).opset_import} == {""}


def test_a_person_reads_sizes_parity_and_accuracy(models: dict[str, Exported]) -> None:
    starts = [line.partition(": ")[0] for line in told(models["int8"])]
    assert starts == [str(models["int8"].path), "it says", "parity", "int8", "accuracy"]


def test_without_the_runs_data_the_model_is_exported_all_the_same(edgefl: Edgefl, tmp_path: Path) -> None:
    np.savez("mine.npz", x=np.random.default_rng(0).normal(size=(40, 5)).astype("f4"), y=np.arange(40) % 3)
    table = {**TABLE, "task": {**TABLE["task"], "data": "npz:mine.npz"}}
    job, _ = jobs.prepare(parse(RunFile, table, "test", environment={}))
    path = tmp_path / checkpoint.save(FolderDisk(tmp_path), job, Checkpoint(jobs.begin(job), (), 0, 0))
    Path("mine.npz").unlink()
    code, out, _ = edgefl("export", path, "model.onnx")
    assert code == 0
    assert "not measured" in out
    assert "mine.npz" in out


def test_a_run_without_test_data_ends_with_a_model_too(tmp_path: Path) -> None:
    task = {"data": "none", "sample": [4], "classes": 3, "model": "softmax"}
    table = {"task": task, "algorithm": {"name": "fedavg"}, "rounds": {"cohort": 2, "quorum": 1}}
    job, _ = jobs.prepare(parse(RunFile, table, "test", environment={}))
    _export(tmp_path / "model.onnx", job, jobs.begin(job))
    onnx.checker.check_model(tmp_path / "model.onnx", full_check=True)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["export", "nowhere", "m.onnx"], "nowhere: no such checkpoint"),
        (["export", ".", "m.onnx"], "holds no checkpoint"),
        (["export", "agent.toml", "m.onnx"], "damaged"),
        (["agent", "evaluate", "agent.toml", "nowhere.onnx"], "nowhere.onnx: cannot be read"),
        (["agent", "evaluate", "agent.toml", "agent.toml"], "model.malformed"),
    ],
)
def test_a_wrong_file_is_named_in_one_line(words: list[str], expected: str, edgefl: Edgefl) -> None:
    code, _, error = edgefl(*words)
    assert code == 2
    assert expected in error
    assert "\n" not in error


@pytest.mark.parametrize("name", ["v.tflite", "model", "model.onnx.gz"])
def test_a_name_that_promises_another_format_is_refused(name: str, edgefl: Edgefl, run_folder: Path) -> None:
    code, _, error = edgefl("export", run_folder, name)
    assert (code, Path(name).exists()) == (2, False)
    assert error.startswith(f"edgefl: {name}: only ONNX can be written; name it e.g. ")
    assert error.endswith(".onnx")


def test_a_checkpoint_whose_figures_are_no_mapping_gives_the_same_card(run_folder: Path, tmp_path: Path) -> None:
    before = Path(shutil.copytree(run_folder, tmp_path / "before"))
    (path,) = before.glob("checkpoint-*.safetensors")
    model, about = store.load(path)
    figures = {name: about["scores"][name] for name in COMMON}
    path.write_bytes(store.sealed(model, {**about, "scores": {**figures, "per_target": None, "scores": None}}))
    card = read(before).facts
    assert card == read(run_folder).facts
    assert (float(card["accuracy"]), "best_score" in card) == (json.loads(card["scores"])["accuracy"], False)


@pytest.mark.parametrize("kind", ["float32", "int8"])
def test_plain_onnxruntime_reads_what_the_model_says_about_itself(kind: str, models: dict[str, Exported]) -> None:
    meta = onnxruntime.InferenceSession(models[kind].path).get_modelmeta()
    facts = meta.custom_metadata_map
    assert (meta.producer_name, meta.graph_name, meta.version) == ("edgefl", "trial", 2)
    assert facts["name"] == "trial"
    assert facts["version"] == f"trial-2-{facts['model_sha256'][:12]}"
    assert facts["edgefl_version"] == __version__
    assert json.loads(facts["input_shape"]) == [1, 8, 8]
    assert json.loads(facts["class_names"]) == list("0123456789")
    assert (facts["algorithm"], facts["rounds"], facts["data"]) == ("fedavg", "2", "digits")
    assert float(facts["accuracy"]) == models["float32"].scores["accuracy"]
    assert facts.get("weights") == ("int8" if kind == "int8" else None)


def test_a_device_says_which_model_it_judges(edgefl: Edgefl, models: dict[str, Exported]) -> None:
    _, _, error = edgefl("agent", "evaluate", "agent.toml", models["float32"].path)
    assert "float32.onnx: trial-2-" in error
    assert "fedavg, 2 rounds on digits, accuracy" in error


def test_int8_that_would_enlarge_a_model_is_left_out_and_told(edgefl: Edgefl, tmp_path: Path) -> None:
    table = {**TABLE, "task": {**TABLE["task"], "data": "synthetic", "model": "softmax"}}
    job, _ = jobs.prepare(parse(RunFile, table, "test", environment={}))
    checkpoint.save(FolderDisk(tmp_path), job, Checkpoint(jobs.begin(job), (), 0, 0))
    code, out, _ = edgefl("export", tmp_path, "small.onnx", "--int8")
    assert code == 0
    assert "int8: not used, it would make the file larger (" in out
    assert "weights" not in onnxruntime.InferenceSession("small.onnx").get_modelmeta().custom_metadata_map


def test_a_file_is_not_written_over_a_folder(edgefl: Edgefl, run_folder: Path, tmp_path: Path) -> None:
    code, _, error = edgefl("export", run_folder, tmp_path)
    assert (code, "is a folder" in error) == (2, True)


@pytest.mark.parametrize("kind", ["float32", "int8"])
def test_a_device_judges_the_model_on_its_own_data(kind: str, edgefl: Edgefl, models: dict[str, Exported]) -> None:
    code, out, _ = edgefl("agent", "evaluate", "agent.toml", models[kind].path, "--json")
    trained, held_back = map(json.loads, out.splitlines())
    assert code == 0
    assert (trained["part"], held_back["part"]) == ("trained on", "held back")
    assert held_back["accuracy"] == models[kind].exported_scores["accuracy"]
    assert trained["samples"] > held_back["samples"] == models[kind].tested
    assert held_back["ms_per_sample"] > 0


def test_predictions_come_as_a_table_or_as_a_file(edgefl: Edgefl, models: dict[str, Exported]) -> None:
    model = models["float32"].path
    x = np.random.default_rng(0).random((3, 1, 8, 8)).astype("f4")
    np.savez("new.npz", x=x)
    np.savetxt("new.csv", x.reshape(3, -1), delimiter=",")  # 1.0e+00: the first line is a sample too
    _, from_npz, _ = edgefl("agent", "predict", "agent.toml", model, "new.npz")
    _, from_csv, _ = edgefl("agent", "predict", "agent.toml", model, "new.csv")
    edgefl("agent", "predict", "agent.toml", model, "new.csv", "--out", "said.npz")
    assert from_npz == from_csv
    assert from_npz.splitlines()[0] == "prediction,confidence,class"
    with np.load("said.npz") as file:
        predictions = dict(file)
    assert predictions["prediction"].tolist() == [int(line.split(",")[0]) for line in from_npz.splitlines()[1:]]
    assert predictions["class"].tolist() == [str(number) for number in predictions["prediction"]]
    assert ((predictions["confidence"] >= 0.1) & (predictions["confidence"] <= 1)).all()


def test_samples_of_another_shape_are_refused(edgefl: Edgefl, models: dict[str, Exported]) -> None:
    np.savez("new.npz", x=np.zeros((2, 1, 9, 9), "f4"))
    code, _, error = edgefl("agent", "predict", "agent.toml", models["float32"].path, "new.npz")
    assert code == 2
    assert "[1, 8, 8]" in error
    assert "[1, 9, 9]" in error


def test_a_model_larger_than_the_device_allows_is_refused(edgefl: Edgefl, models: dict[str, Exported]) -> None:
    model = onnx.load(models["float32"].path)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(2 << 18, "f4"), "heavy"))
    onnx.save(model, "heavy.onnx")
    code, _, error = edgefl("agent", "evaluate", "agent.toml", "heavy.onnx", "--set", "compute.memory_mb=1")
    assert (code, "model.too_large" in error) == (2, True)


def test_a_device_needs_no_torch_for_it(models: dict[str, Exported], tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x=np.zeros((10, 1, 8, 8), "f4"), y=np.arange(10))
    (tmp_path / "agent.toml").write_text(f"[agent]\nid = 'pi'\n[data]\nsource = 'npz:{tmp_path}/mine.npz'\n")
    blocked = (
        "import sys; sys.modules.update(dict.fromkeys(['torch', 'onnx'])); from edgefl.cli.app import main; main()"
    )
    words = ["agent", "evaluate", str(tmp_path / "agent.toml"), str(models["float32"].path)]
    done = subprocess.run([sys.executable, "-c", blocked, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "held back: accuracy" in done.stdout


@pytest.mark.parametrize("labelled", ["{cells};{label}", "{label},{cells}"])
def test_new_samples_may_have_labels_that_nobody_needs(
    labelled: str, edgefl: Edgefl, models: dict[str, Exported]
) -> None:
    x = np.random.default_rng(0).random((3, 64)).round(3)
    lines = [labelled.format(cells=(";" if ";" in labelled else ",").join(map(str, row)), label="x") for row in x]
    head = "label," + ",".join(f"p{i}" for i in range(64)) + "\n" if ";" not in labelled else ""
    Path("labelled.csv").write_text(head + "\n".join(lines))
    code, out, _ = edgefl("agent", "predict", "agent.toml", models["float32"].path, "labelled.csv")
    assert (code, len(out.splitlines())) == (0, 4)


def test_labels_are_matched_with_a_model_by_their_names(edgefl: Edgefl, models: dict[str, Exported]) -> None:
    source = load("digits")
    digits, names = source.train.take(np.flatnonzero(source.train.y >= 5)), ("nine", "8", "7", "6", "5")
    Path("own.toml").write_text('[data]\nsource = "npz:own.npz"\n')
    for first, code in (("9", 0), ("nine", 2)):
        order = np.array([first, *names[1:]])
        np.savez("own.npz", x=digits.x, y=9 - digits.y, classes=order)
        ended, out, error = edgefl("agent", "evaluate", "own.toml", models["float32"].path, "--json")
        assert ended == code
        if code:
            assert "label 'nine' is no class of the run" in error
        else:
            assert json.loads(out.splitlines()[0])["accuracy"] > 0.5
