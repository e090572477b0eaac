"""Constants: straight lines are found again, and those that come with the program meet the curve they come with."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefl.lab.planning import costs
from edgefl.lab.planning.costs import QUANTITIES, TERMS, Costs, MeasuredRound, RoundSize, fit, fitted
from edgefl.ops.bench.scale import report
from edgefl.ops.bench.scale.points import DEVICES, NAMED, PARAMS, Point, sweep

SIZES = [RoundSize(point.devices, point.cohort, 4e-6 * point.params) for point in sweep(DEVICES, PARAMS, NAMED)]
ONE = MeasuredRound(10, 5, 1_000_000, 0.5, 0.2, 0.1, 0.3, 100.0, 20.0, 22.0, 44.0, asked_again=0, lost=0)


@given(st.lists(st.one_of(st.just(0.0), st.floats(0.001, 10)), min_size=len(TERMS), max_size=len(TERMS)))
def test_a_cost_that_is_linear_is_predicted_as_it_was(constants: list[float]):
    values = [sum(c * t for c, t in zip(constants, size.terms, strict=True)) for size in SIZES]
    if not all(values):
        return
    model = Costs({"wall": fit(SIZES, values)}, [], {})
    assert [model.of("wall", size) for size in SIZES] == pytest.approx(values, rel=1e-4)


@given(st.lists(st.floats(0.001, 1000), min_size=len(SIZES), max_size=len(SIZES)))
def test_no_constant_is_below_zero_whatever_was_measured(values: list[float]):
    assert min(fit(SIZES, values)) >= 0


# How far a prediction may be from what was measured; CPU times of neighbours on one machine are the least certain.
FACTORS = {"coordinator_mb": 1.5, "broker_in": 1.5, "coordinator_cpu": 2.0, "broker_out": 2.0, "broker_mb": 2.5}


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_what_is_predicted_is_what_was_measured_within_a_factor(quantity: str):
    ratios = costs.load().departures(quantity)
    most = FACTORS.get(quantity, 3.0)
    assert max(ratios) < most
    assert min(ratios) > 1 / most


def test_the_constants_of_the_file_are_those_of_its_points():
    shipped = costs.load()
    again = fitted(shipped.points, shipped.machine)
    for quantity in QUANTITIES:
        ours, theirs = ([model.of(quantity, one.size) for one in shipped.points] for model in (again, shipped))
        assert ours == pytest.approx(theirs, rel=0.05)


def test_the_curve_of_the_file_lost_nothing_and_has_the_fleet_that_was_promised():
    points = costs.load().points
    assert any((p.devices, p.cohort, p.params) == (1000, 100, 1_000_000) for p in points)
    assert max(p.devices for p in points) >= 2000
    assert max(p.params for p in points) >= 50_000_000
    assert sum(p.lost for p in points) == 0


def test_a_file_that_was_written_is_read_again(tmp_path, monkeypatch: pytest.MonkeyPatch):
    model = fitted([ONE, replace(ONE, devices=20, wall=1.0)], {"processor": "a chip"})
    (tmp_path / "measured.json").write_text(model.text(), encoding="utf-8")
    monkeypatch.setattr(costs.resources, "files", lambda _: tmp_path)
    again = costs.load()
    assert (again.points, again.machine) == (model.points, model.machine)
    assert again.constants["wall"] == pytest.approx(model.constants["wall"], rel=1e-3)


def test_large_models_are_given_to_fewer_devices():
    points = sweep([10], [10_000, 50_000_000], [Point(1000, 100, 7)])
    assert points == [Point(2, 2, 50_000_000), Point(10, 10, 10_000), Point(1000, 100, 7)]


def test_the_page_has_every_point_every_constant_and_what_was_lost():
    model = costs.load()
    page = report.markdown(model, 0, "figures/scale.svg")
    assert "1,000 | 100 | 1,000,000" in page
    assert all(name in page for name in report.NAMES.values())
    assert "dropped 0 messages" in page
    assert report.total([0, None]) is None
    assert "did not report" in report.complete(model.points, None)
