"""Windows of a time series: none reaches over a gap, none shares a row with the other part."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.base.errors import ConfigError
from edgefl.learn.data import windows
from edgefl.learn.data.catalog import load
from edgefl.learn.data.reading import Reading


@st.composite
def recordings(draw) -> str:
    """A log in any order of its rows: groups, gaps in time, empty cells; the first column is the number of a moment."""
    lines, moment = [], 0
    for group in range(draw(st.integers(1, 3))):
        for _ in range(draw(st.integers(1, 3))):
            length = draw(st.integers(1, 60))
            moment += 50
            for _ in range(length):
                moment += 1
                empty = draw(st.integers(0, 30)) == 0
                lines.append(f"{moment},{'' if empty else moment},g{group},{moment % 3}")
    return "t,x,who,label\n" + "\n".join(draw(st.permutations(lines))) + "\n"


@settings(max_examples=80, deadline=None)
@given(text=recordings(), window=st.integers(2, 9), stride=st.integers(1, 6), empty=st.sampled_from(["drop", "last"]))
def test_no_window_reaches_over_a_gap_and_no_row_is_in_both_parts(tmp_path_factory, text, window, stride, empty):
    path = tmp_path_factory.mktemp("log") / "a.csv"
    path.write_text(text)
    rows = {int(line.split(",")[0]): line.split(",") for line in text.splitlines()[1:]}
    reading = Reading(columns=("x",), label="label", time="t", group="who", window=window, stride=stride, empty=empty)
    try:
        source = load(f"csv:{path}", reading=reading)
    except ConfigError as error:
        if "at least 2 that share no row" in str(error):
            return
        raise
    seen: list[set[int]] = []
    for part in (source.train, source.test):
        moments = set()
        for sample, label in zip(part.x, part.y, strict=True):
            assert sample.shape == (1, window)
            if empty == "drop":
                steps = np.diff(sample[0])
                assert (steps == 1).all()  # one row after the other, nothing missing between
                assert len({rows[int(moment)][2] for moment in sample[0]}) == 1
                assert label == int(rows[int(sample[0][-1])][3])
                moments |= set(sample[0].astype(int).tolist())
        seen.append(moments)
    assert not seen[0] & seen[1]


@settings(max_examples=100, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 200), min_size=1, max_size=5), window=st.integers(1, 12), more=st.integers(1, 300)
)
def test_what_is_held_back_stays_so_when_rows_are_added(lengths, window, more):
    def divided(lengths: list[int]) -> tuple[set[int], set[int]]:
        begins = np.zeros(sum(lengths), bool)
        begins[np.r_[0, np.cumsum(lengths)[:-1]].astype(int)] = True
        starts = windows.starts(begins, np.zeros(len(begins), np.int64), window, 1)
        return set(starts.train.tolist()), set(starts.test.tolist())

    (train, test), (later_train, later_test) = divided(lengths), divided([*lengths[:-1], lengths[-1] + more])
    if sum(lengths) < 40 * max(window, 4):  # too little for blocks of full size: what is held back may still change
        return
    assert not train & later_test
    assert not test & later_train


@settings(max_examples=50, deadline=None)
@given(n=st.integers(200, 2000), window=st.integers(1, 20))
def test_about_a_fifth_is_held_back_and_little_is_lost(n, window):
    begins, n = np.zeros(n * window, bool), n * window
    begins[0] = True
    starts = windows.starts(begins, np.zeros(n, np.int64), window, max(1, window // 2))
    total = len(starts.train) + len(starts.test) + starts.lost
    assert 0.1 < len(starts.test) / total < 0.25
    assert starts.lost / total < 0.15


def test_the_majority_of_a_window_decides_and_the_last_row_where_two_are_equal():
    labels = np.array([0, 0, 1, 1, 1, 0, -1, -1, -1, -1])
    first = np.array([0, 1, 2, 6])
    found = windows.label_of_windows(labels, first, 4, majority=True, classes=2)
    assert found.tolist() == [1, 1, 1, -1]
    assert windows.label_of_windows(labels, first, 4, majority=False, classes=2).tolist() == [1, 1, 0, -1]


def test_rows_without_a_label_are_part_of_windows_that_have_one(tmp_path: Path):
    rows = "".join(f"{i},{i},{'' if i % 4 else i}\n" for i in range(100))  # a target that is measured now and then
    (tmp_path / "a.csv").write_text("t,x,y\n" + rows)
    reading = Reading(time="t", label=("y",), window=4, stride=1, empty="drop")
    source = load(f"csv:{tmp_path / 'a.csv'}", reading=reading)
    for part in (source.train, source.test):
        assert len(part)
        assert np.array_equal(part.x[:, 0, -1], part.y)  # the target is that of the last row
    assert source.train.shape == (1, 4)


def test_windows_end_where_a_file_does_unless_time_says_otherwise(tmp_path: Path):
    for i in range(2):
        (tmp_path / f"{i}.csv").write_text("t,x,label\n" + "".join(f"{j},{j},0\n" for j in range(50 * i, 50 * i + 50)))
    untimed = Reading(columns=("x",), label="label", window=10, stride=1)
    timed = Reading(columns=("x",), label="label", window=10, stride=1, time="t")
    parts = (load(f"csv:{tmp_path}", reading=r) for r in (untimed, timed))
    over = [any((p.x[:, 0].min(1) < 50) & (p.x[:, 0].max(1) >= 50)) for s in parts for p in (s.train, s.test)]
    assert not any(over[:2])


@pytest.mark.parametrize(
    "keys", [{"stride": 2}, {"window": 4, "label": ["a"], "window_label": "majority"}, {"encoding": "x"}]
)
def test_keys_that_mean_nothing_are_refused(keys):
    with pytest.raises(ValueError, match=r"give window too|is for classes|is no encoding"):
        Reading(**keys)
