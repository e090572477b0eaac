"""The benches run, compare what they say they compare, and print it; how fast is nobody's business here."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from coordinator import stored
from edgefl.bench import algorithms, device, memory, report, secured, simulator, transport, unsigned
from edgefl.bench.cases import CASES, Case
from edgefl.bench.clock import turns
from edgefl.bench.report import Comparison
from edgefl.cli import bench_merge
from edgefl.cli.app import app
from edgefl.cli.bench_transport import Secured, Services, Unsigned
from edgefl.errors import ConfigError
from edgefl.fleet.folder import FleetFolder
from edgefl.protocol.address import Address
from edgefl.system.processes import python
from edgefl.vector import Layout

ONE = Comparison("a thing", "ms", (3.0, 1.0, 2.0), (1.0, 2.0, 4.0), bar=1.5, limit=2.0)


def test_the_ratio_is_that_of_the_medians_and_the_best_that_of_the_smallest():
    assert (ONE.ratio, ONE.best_ratio) == (1.0, 1.0)
    assert Comparison("", "", (6, 1, 5), (2, 2, 2)).ratio == 2.5


@pytest.mark.parametrize(
    ("bar", "limit", "met"), [(None, None, None), (1.0, None, True), (0.9, 9, False), (2, 1.9, False), (2, 2, True)]
)
def test_both_the_bar_and_the_limit_must_hold(bar: float | None, limit: float | None, met: bool | None):
    assert Comparison("", "", (3, 1, 2), (1, 2, 4), bar, limit).met is met


def test_the_table_is_aligned_and_says_what_was_missed():
    slow = Comparison("a longer name", "ms", (400.0,), (100.0,), bar=1.5)
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


@pytest.mark.usefixtures("mosquitto")
def test_the_transport_bench_moves_a_model_on_both_sides(tmp_path: Path):
    plan = transport.Plan(devices=2, params=(200_000, 50), rounds=1, repeats=1)
    large_wall, large_cpu, sealed_cpu, small_wall, small_cpu, _ = transport.against_bare(plan, Services(), tmp_path)
    assert [large_wall.what, small_cpu.what] == ["200,000 parameters, wall", "50 parameters, CPU"]
    assert (large_wall.bar, large_cpu.bar, sealed_cpu.bar, small_wall.limit) == (1.5, 1.5, 1.1, 50)
    assert sealed_cpu.reference == large_cpu.ours
    assert min(*large_wall.ours, *large_wall.reference, *small_wall.ours, *small_wall.reference) > 0


@pytest.mark.usefixtures("mosquitto")
def test_what_security_costs_is_measured_against_services_that_have_none(tmp_path: Path):
    plan = transport.Plan(devices=2, params=(50,), rounds=1, repeats=1)
    wall, cpu = transport.against_plain(plan, Secured, Unsigned(), tmp_path)
    assert (wall.what, wall.bar, cpu.bar) == ("50 parameters, wall", 1.25, 1.25)
    assert min(*wall.ours, *wall.reference) > 0
    # Who signs has a key on its disk, and who speaks TLS a certificate.
    assert _files(tmp_path / "secured" / "device-00") == {"device.key", "tls.pem"}
    assert _files(tmp_path / "plain" / "device-00") == set()
    assert not FleetFolder(secured.NAME).exists()  # among those of whoever runs the bench


def test_a_bench_without_signatures_stays_on_this_machine():
    with pytest.raises(ConfigError, match="without signatures"):
        unsigned.signer("device-00", Address("mqtt", "192.0.2.7", 1883))


def test_the_broker_of_a_secured_fleet_is_not_to_be_chosen():
    result = CliRunner().invoke(app, ["bench", "transport", "--secured", "--broker", "iotcore"])
    assert isinstance(result.exception, ConfigError)
    assert "Mosquitto" in str(result.exception)


def test_the_device_bench_compares_both_back_ends():
    token = Case("text", (5,), 1.0, 3, batch=2, calls=1)
    image = Case("softmax", (1, 4, 4), 1.0, 3, batch=2, calls=1)
    findings = list(device.steps((token, image), repeats=1))
    assert [one.what for one in findings] == ["text, batch of 2", "softmax, batch of 2"]


def test_a_training_process_tells_its_memory_and_its_start(tmp_path: Path):
    lenet = next(case for case in CASES if case.network == "lenet5")

    def command(kind: str, graphs: Path) -> list[str]:
        return python("edgefl.cli.bench_trainee", kind, lenet.network, str(graphs))

    memory, wall, cpu = device.trainees(lenet, command, tmp_path, repeats=1)
    assert 20 < memory.ours[0] < memory.reference[0]
    assert min(wall.ours[0], cpu.ours[0]) > 0


def test_an_agent_with_its_box_is_small_and_nearly_as_fast_as_without(tmp_path: Path):
    lenet = next(case for case in CASES if case.network == "lenet5")
    memory, wall, cpu = device.boxed(
        lenet, lambda graphs: python("edgefl.cli.bench_boxed", lenet.network, str(graphs), "3"), tmp_path
    )
    assert 20 < memory.ours[0] < 100
    assert (wall.excess, len(wall.ours), len(cpu.reference)) == (5.0, 3, 3)
    assert min(*wall.ours, *cpu.ours) > 0


def test_an_excess_is_the_difference_of_the_best():
    assert report.Comparison("a thing", "ms", [9.0, 3.0], [2.0, 1.0], excess=2.0).met
    assert not report.Comparison("a thing", "ms", [9.0, 3.1], [2.0, 1.0], excess=2.0).met


def test_the_algorithms_bench_compares_each_with_its_reference():
    sizes = algorithms.Sizes(params=500, updates=6, new=2, samples=8, batches=1, networks=("mlp",), repeats=1)
    findings = list(algorithms.compare(sizes))
    assert [one.bar for one in findings] == [1.05, 3.0, 3.0, 1.1]
    assert findings[1].what == "GradMA's memory of 6, 2 new, to one pass"


def test_the_simulator_bench_compares_one_worker_and_two_with_torch_and_with_the_products():
    tiny = simulator.Fleet("mlp", (1, 2, 2), 3, devices=10, samples=4, rounds=1, one=0.5, two=0.25)
    products, one, two = simulator.compare([tiny], repeats=1)
    assert (products.bar, one.bar, two.bar) == (1.5, 0.5, 0.25)
    assert products.ours == one.ours
    assert not simulator.job_of(tiny).run.judged_by_devices  # training is measured, not evaluation
    assert min(*products.reference, *one.reference, *two.ours, *two.reference) > 0


def test_a_step_of_dense_layers_has_three_products_for_each_but_the_first():
    given, products = simulator.dense(Layout(("a", "b", "c"), ((5, 7), (5,), (3, 5))))
    assert [(one.a, one.b, one.shape) for one in products] == [
        *(("x.0", "w.0", (32, 5)), ("dz.0", "x.0", (5, 7))),
        *(("x.1", "w.1", (32, 3)), ("dz.1", "x.1", (3, 5)), ("dz.1", "w.1", (32, 5))),
    ]
    assert (given["x.1"], given["dz.1"]) == ((32, 5), (32, 3))


def test_the_command_prints_the_machine_and_then_a_line_for_each_finding(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("edgefl.bench.algorithms.compare", lambda _sizes: iter([ONE, ONE]))
    result = CliRunner().invoke(app, ["bench", "algorithms", "--json"])
    machine, *findings = map(json.loads, result.stdout.splitlines())
    assert machine["cores"] >= 1
    assert [one["met"] for one in findings] == [True, True]
    shown = CliRunner().invoke(app, ["bench", "algorithms"]).stdout.splitlines()
    assert "load before" in shown[0]
    assert len([line for line in shown if line.startswith("a thing")]) == 2


def test_a_network_that_is_not_measured_is_named():
    result = CliRunner().invoke(app, ["bench", "device", "--network", "lenet"])
    assert isinstance(result.exception, ConfigError)
    assert "lenet5" in str(result.exception)


def _files(home: Path) -> set[str]:
    return {path.name for path in home.iterdir()} & {"device.key", "tls.pem"}


@pytest.mark.parametrize("kind", ["sums", "rows"])
def test_a_round_of_the_memory_bench_is_the_same_from_memory_and_from_the_journal(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    told = []
    for held in (stored.HELD, 0):
        monkeypatch.setattr(stored, "HELD", held)
        bench_merge.main(3000, 7, tmp_path, kind)
        told.append(json.loads(capsys.readouterr().out))
    assert told[0]["sha256"] == told[1]["sha256"]
    assert all(one["extra"] >= 0 for one in told)


def test_the_memory_bench_compares_with_torch_and_with_the_answers_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(memory, "coordinator", lambda *_: (100.0, 200.0))
    monkeypatch.setattr(memory, "_peak", lambda *_: 250.0)
    merge = [sys.executable, "-c", "print('{\"extra\": 50.0}')"]
    rows = list(memory.measure(memory.Plan(params=10**6, answers=100), lambda *_: merge, tmp_path))
    assert [(row.ours, row.reference, row.met) for row in rows] == [
        ((100.0,), (250.0,), True),
        ((200.0,), (250.0,), True),
        ((50.0,), (400.0,), True),
        ((50.0,), (40.0,), True),
    ]
