"""Drawings: numbers that lie on the paper, whatever is drawn."""

import re

from hypothesis import example, given
from hypothesis import strategies as st

from edgefl.watch.report import svg

FIGURES = st.floats(-1e9, 1e9) | st.none() | st.just(float("nan")) | st.just(float("inf"))


@given(st.lists(FIGURES, min_size=1, max_size=20))
@example([5e-324])
def test_a_drawing_is_made_of_numbers_that_lie_on_the_paper(values: list[float | None]) -> None:
    across, curve = [float(i) for i in range(1, len(values) + 1)], svg.Curve("c", values)
    for drawn in (
        svg.curves("t", across, [curve]),
        svg.stacked("t", across, [curve, curve]),
        svg.heat("t", across, [curve]),
    ):
        assert "nan" not in drawn
        assert "inf" not in drawn
        for y in re.findall(r' c?y="([-0-9.]+)"', drawn):
            assert -1 <= float(y) <= svg.HEIGHT + 1


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_ticks_are_few_in_order_and_around_what_they_measure(low: float, span: float) -> None:
    ticks = svg._ticks(low, low + span)
    assert ticks == sorted(set(ticks))
    assert 2 <= len(ticks) <= 10
    assert ticks[0] <= low + 1e-6 * span
    assert ticks[-1] >= low + span - 1e-6 * span


def test_a_curve_goes_through_its_points_and_lifts_the_pen_where_nothing_is_known() -> None:
    drawn = svg.curves("t", [1.0, 2.0, 3.0, 4.0], [svg.Curve("c", [0.0, None, 1.0, 0.5])], svg.percent, 0.0, 1.0)
    (path,) = re.findall(r' d="([^"]+)"', drawn)
    left, right, top, bottom = svg.LEFT, svg.WIDTH - svg.RIGHT, svg.TOP, svg.HEIGHT - svg.BOTTOM
    third = left + (right - left) * 2 / 3
    assert path == f"M{left:.1f} {bottom:.1f}M{third:.1f} {top:.1f}L{right:.1f} {(top + bottom) / 2:.1f}"
    assert "round 3: c 100%" in drawn


def test_nothing_to_draw_is_no_drawing() -> None:
    assert svg.curves("t", [1.0], [svg.Curve("c", [None])]) == ""
    assert svg.curves("t", [], []) == ""
    assert svg.stacked("t", [1.0], [svg.Curve("c", [0.0])]) == ""
    assert svg.heat("t", [], []) == ""
