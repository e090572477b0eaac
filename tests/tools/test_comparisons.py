"""The comparisons run, compare what they say they compare, and print it; how fast is nobody's business here."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from edgefl.base.errors import ConfigError
from edgefl.base.vector import Layout
from edgefl.fleet.folder import FleetFolder
from edgefl.ops.bench import secured
from edgefl.ops.bench.report import BenchComparison
from edgefl.wire.address import Address
from tools.bench import algorithms, simulator, transport, unsigned
from tools.bench.commands import app
from tools.bench.services import Secured, Services, Unsigned

ONE = BenchComparison("a thing", "ms", (3.0, 1.0, 2.0), (1.0, 2.0, 4.0), bar=1.5, limit=2.0)


@pytest.mark.usefixtures("mosquitto")
def test_the_transport_bench_moves_a_model_on_both_sides(tmp_path: Path):
    plan = transport.TransportBench(devices=2, params=(200_000, 50), rounds=1, repeats=1)
    large_wall, large_cpu, sealed_cpu, small_wall, small_cpu, _ = transport.against_bare(plan, Services(), tmp_path)
    assert [large_wall.what, small_cpu.what] == ["200,000 parameters, wall", "50 parameters, CPU"]
    assert (large_wall.bar, large_cpu.bar, sealed_cpu.bar, small_wall.limit) == (1.5, 1.5, 1.1, 50)
    assert sealed_cpu.reference == large_cpu.ours
    assert min(*large_wall.ours, *large_wall.reference, *small_wall.ours, *small_wall.reference) > 0


@pytest.mark.usefixtures("mosquitto")
def test_what_security_costs_is_measured_against_services_that_have_none(tmp_path: Path):
    plan = transport.TransportBench(devices=2, params=(50,), rounds=1, repeats=1)
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
    result = CliRunner().invoke(app, ["transport", "--secured", "--broker", "iotcore"])
    assert isinstance(result.exception, ConfigError)
    assert "Mosquitto" in str(result.exception)


def test_the_algorithms_bench_compares_each_with_its_reference():
    sizes = algorithms.ProblemSizes(params=500, updates=6, new=2, samples=8, batches=1, networks=("mlp",), repeats=1)
    findings = list(algorithms.compare(sizes))
    assert [one.bar for one in findings] == [1.05, 3.0, 3.0, 1.1]
    assert findings[1].what == "GradMA's memory of 6, 2 new, to one pass"


def test_the_simulator_bench_compares_one_worker_and_two_with_torch_and_with_the_products():
    tiny = simulator.BenchFleet("mlp", (1, 2, 2), 3, devices=10, samples=4, rounds=1, one=0.5, two=0.25)
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
    monkeypatch.setattr("tools.bench.algorithms.compare", lambda _sizes: iter([ONE, ONE]))
    result = CliRunner().invoke(app, ["algorithms", "--json"])
    machine, *findings = map(json.loads, result.stdout.splitlines())
    assert machine["cores"] >= 1
    assert [one["met"] for one in findings] == [True, True]
    shown = CliRunner().invoke(app, ["algorithms"]).stdout.splitlines()
    assert "load before" in shown[0]
    assert len([line for line in shown if line.startswith("a thing")]) == 2


def _files(home: Path) -> set[str]:
    return {path.name for path in home.iterdir()} & {"device.key", "tls.pem"}
