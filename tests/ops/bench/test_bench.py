"""The benches run, compare what they say they compare, and print it; how fast is nobody's business here."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from coordinator.durable import answer_store
from edgefl.base.errors import ConfigError
from edgefl.cli.app import app
from edgefl.ops.bench import device, memory, merge, report
from edgefl.ops.bench.cases import CASES, Case
from edgefl.ops.bench.clock import turns
from edgefl.ops.bench.report import BenchComparison

ONE = BenchComparison("a thing", "ms", (3.0, 1.0, 2.0), (1.0, 2.0, 4.0), bar=1.5, limit=2.0)


def test_the_ratio_is_that_of_the_medians_and_the_best_that_of_the_smallest():
    assert (ONE.ratio, ONE.best_ratio) == (1.0, 1.0)
    assert BenchComparison("", "", (6, 1, 5), (2, 2, 2)).ratio == 2.5


@pytest.mark.parametrize(
    ("bar", "limit", "met"), [(None, None, None), (1.0, None, True), (0.9, 9, False), (2, 1.9, False), (2, 2, True)]
)
def test_both_the_bar_and_the_limit_must_hold(bar: float | None, limit: float | None, met: bool | None):
    assert BenchComparison("", "", (3, 1, 2), (1, 2, 4), bar, limit).met is met


def test_the_table_is_aligned_and_says_what_was_missed():
    slow = BenchComparison("a longer name", "ms", (400.0,), (100.0,), bar=1.5)
    head, _, *rows = report.table("Title", ("ours", "theirs"), [ONE, slow])
    assert " ".join(rows[0].split()) == "a thing 2.00 (1.00) ms 2.00 (1.00) ms 1.00 (1.00) <= 1.5 x, <= 2 ms met"
    assert rows[1].endswith("MISSED")
    assert "4.00 (4.00)" in rows[1]
    assert {row.index(") ms") for row in rows} == {head.index("ours median (best)") + len("ours median (best)") - 4}


def test_the_sides_take_turns():
    told: list[str] = []
    ours, theirs = turns(lambda: told.append("a"), lambda: told.append("b"), repeats=2, calls=2)
    assert "".join(told) == "ab" + "aabb" * 2
    assert len(ours) == len(theirs) == 2


def test_the_device_bench_compares_both_back_ends():
    token = Case("text", (5,), 1.0, 3, batch=2, calls=1)
    image = Case("softmax", (1, 4, 4), 1.0, 3, batch=2, calls=1)
    findings = list(device.steps((token, image), repeats=1))
    assert [one.what for one in findings] == ["text, batch of 2", "softmax, batch of 2"]


def test_a_training_process_tells_its_memory_and_its_start(tmp_path: Path):
    lenet = next(case for case in CASES if case.network == "lenet5")

    memory, wall, cpu = device.trainees(lenet, tmp_path, repeats=1)
    assert 0 < memory.ours[0] < memory.reference[0]
    assert min(wall.ours[0], cpu.ours[0]) > 0


def test_an_agent_with_its_box_is_measured_beside_one_without(tmp_path: Path):
    lenet = next(case for case in CASES if case.network == "lenet5")
    memory, wall, cpu = device.boxed(lenet, 3, tmp_path)
    assert memory.ours[0] > 0
    assert (wall.excess, len(wall.ours), len(cpu.reference)) == (5.0, 3, 3)
    assert min(*wall.ours, *cpu.ours) > 0


def test_an_excess_is_the_difference_of_the_best():
    assert report.BenchComparison("a thing", "ms", [9.0, 3.0], [2.0, 1.0], excess=2.0).met
    assert not report.BenchComparison("a thing", "ms", [9.0, 3.1], [2.0, 1.0], excess=2.0).met


def test_a_network_that_is_not_measured_is_named():
    result = CliRunner().invoke(app, ["bench", "device", "--network", "lenet"])
    assert isinstance(result.exception, ConfigError)
    assert "lenet5" in str(result.exception)


@pytest.mark.parametrize("kind", ["sums", "rows"])
def test_a_round_of_the_memory_bench_is_the_same_from_memory_and_from_the_journal(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    told = []
    for held in (answer_store.HELD, 0):
        monkeypatch.setattr(answer_store, "HELD", held)
        merge.main(3000, 7, tmp_path, kind)
        told.append(json.loads(capsys.readouterr().out))
    assert told[0]["sha256"] == told[1]["sha256"]
    assert all(one["extra"] >= 0 for one in told)


def test_the_memory_bench_compares_with_torch_and_with_the_answers_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(memory, "coordinator", lambda *_: (100.0, 200.0))
    monkeypatch.setattr(memory, "_peak", lambda *_: 250.0)
    monkeypatch.setattr(memory, "_merged", lambda *_: 50.0)
    rows = list(memory.measure(memory.MemoryBench(params=10**6, answers=100), tmp_path))
    assert [(row.ours, row.reference, row.met) for row in rows] == [
        ((100.0,), (250.0,), True),
        ((200.0,), (250.0,), True),
        ((50.0,), (400.0,), True),
        ((50.0,), (40.0,), True),
    ]


@pytest.mark.parametrize("kind", ["sums", "rows"])
def test_a_process_that_merges_tells_what_it_took(kind: str, tmp_path: Path):
    assert memory._merged(300, 7, kind, tmp_path) >= 0
