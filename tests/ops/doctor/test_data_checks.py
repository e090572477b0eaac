"""The doctor looks at a device's data before a coordinator does."""

from pathlib import Path

import numpy as np
import pytest

from edgefl.job.config.agent_file import LocalData
from edgefl.learn.data.dataset import Dataset
from edgefl.ops.doctor.data import data, labels


def look(tmp_path: Path, text: str) -> list[tuple[str, str, str]]:
    (tmp_path / "a.csv").write_text(text)
    findings = data(LocalData(source=f"csv:{tmp_path / 'a.csv'}"))
    return [(finding.level, finding.text, finding.remedy) for finding in findings]


def test_healthy_data_are_counted(tmp_path: Path) -> None:
    (kind, text, _), (_, seen, _), (_, scale, _) = look(tmp_path, "0.5,1.5,sit\n0.5,-2.5,walk\n" * 5)
    assert kind == "ok"
    assert "8 samples of shape [2], 2 classes (sit: " in text
    assert seen == "10 rows, columns 1, 2"
    assert scale == "the largest feature is 2.5"


def test_targets_are_told_from_classes(tmp_path: Path) -> None:
    assert "real targets from 0.25 to 1.5" in look(tmp_path, "0.5,0.25\n0.5,1.5\n" * 5)[0][1]


def test_unscaled_features_are_a_warning(tmp_path: Path) -> None:
    level, text, remedy = look(tmp_path, "1013.25,0\n998,1\n" * 5)[-1]
    assert (level, text) == ("warning", "features go up to 1013.25")
    assert "task.normalise = 'fleet'" in remedy


@pytest.mark.parametrize(
    ("text", "words", "remedy"),
    [
        ("1,,0\n", "line 1, column '2': the cell is empty", "fill it"),
        ("1,inf,0\n1,2,1\n", "NaN or infinity in sample 0", "clean or drop it"),
        ("", "is empty", "give one sample a line"),
    ],
)
def test_data_that_cannot_be_used_are_wrong(tmp_path: Path, text: str, words: str, remedy: str) -> None:
    ((level, problem, do),) = look(tmp_path, text)
    assert level == "wrong"
    assert words in problem
    assert remedy in do


def test_a_file_that_is_not_there_is_wrong() -> None:
    (finding,) = data(LocalData(source="npz:/no/such/file.npz"))
    assert (finding.level, finding.remedy) == ("wrong", "give a path that exists")


def test_arrays_are_looked_at_too(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.ones((10, 3, 4)), y=np.arange(10) % 2)
    first = next(iter(data(LocalData(source=f"npz:{tmp_path / 'a.npz'}"))))
    assert "8 samples of shape [3, 4], 2 classes (0: " in first.text


def test_classes_without_a_sample_are_counted_not_listed():
    held = Dataset(np.ones((3, 2), np.float32), np.array([20, 21, 21]), 22)
    assert labels(held) == "22 classes (20: 1, 21: 2; 20 more without a sample)"
    endless = Dataset(np.zeros((2, 1), np.float32), np.array([0, 10**12]), 10**12 + 1)
    assert labels(endless) == "labels from 0 to 1000000000000", "which takes no memory for each class"


def test_a_table_of_measurements_is_described(tmp_path: Path) -> None:
    rows = [f"2026-11-01 10:{i // 60:02d}:{i % 60:02d};{i / 10:.1f};{'walk' if i % 40 else 'fall'}" for i in range(200)]
    rows += [f"2026-11-02 10:00:{i:02d};;sit" for i in range(40)]
    text = "when;ax;label\n" + "\n".join(rows).replace(".", ",")
    (tmp_path / "a.csv").write_text(text)
    settings = LocalData(source=f"csv:{tmp_path / 'a.csv'}", window=8, empty=0.0, window_label="majority")
    said = [finding.text for finding in data(settings)]
    assert "samples of shape [1, 8]" in said[0]
    assert said[1] == "240 rows, columns ax"
    assert said[2] == "40 rows with an empty cell (data.empty)"
    assert said[3] == "ordered by 'when', 1 gap"
    assert said[4].startswith("windows of 8 rows, one every 4: ")


def test_a_class_that_is_rare_is_a_warning_that_names_the_remedy(tmp_path: Path) -> None:
    findings = look(tmp_path, "1,ok\n" * 200 + "2,broken\n" * 6)
    assert any(level == "warning" and "'broken' has" in text for level, text, _ in findings)
    assert any("task.class_weights = 'balanced'" in remedy for _, _, remedy in findings)
