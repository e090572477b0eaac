"""What a fleet says of its data: as exact as if all samples were in one place, whoever spoke first, whoever lies."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.data.dataset import Dataset
from edgefl.data.description import FEWEST, balanced, check, describe, merged
from edgefl.errors import WireError


def device(rng: np.random.Generator, n: int, shape: tuple[int, ...], offset: float = 0.0, classes: int = 3) -> Dataset:
    x = (rng.normal(offset, 1 + rng.random(), (n, *shape))).astype(np.float32)
    return Dataset(x, rng.integers(0, classes, n), classes)


def told(data: Dataset) -> dict[str, np.ndarray]:
    return describe(data, features=True, classes=True)


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(FEWEST, 60), min_size=1, max_size=5),
    shape=st.sampled_from([(4,), (3, 7), (2, 5, 5)]),
    offset=st.sampled_from([0.0, 1013.25, 1e5]),
    seed=st.integers(0, 99),
)
def test_the_fleet_knows_what_all_samples_together_would_tell(sizes, shape, offset, seed):
    rng = np.random.default_rng(seed)
    fleet = {f"pi-{i}": device(rng, n, shape, offset + i) for i, n in enumerate(sizes)}
    said = {name: told(data) for name, data in fleet.items()}
    values = int(np.prod(shape[1:]))
    one = merged(said, values)
    x = np.concatenate([data.x for data in fleet.values()]).astype(np.float64)
    axes = (0, *range(2, x.ndim))
    np.testing.assert_allclose(one["mean"], x.mean(axis=axes), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(1 / one["scale"], x.std(axis=axes), rtol=1e-5)
    assert one["classes"].tolist() == sum(data.counts() for data in fleet.values()).tolist()
    shuffled = {name: said[name] for name in rng.permutation(list(said))}
    again = merged(shuffled, values)
    assert all(np.array_equal(one[key], again[key]) for key in one)  # to the last bit, in any order


def test_a_device_with_few_samples_says_nothing():
    few = told(device(np.random.default_rng(0), FEWEST - 1, (4,)))
    assert not any(array.any() for array in few.values())
    check(few, 4, 3)
    assert merged({"a": few}, 1)["devices"].tolist() == [0]
    silent = describe(device(np.random.default_rng(0), 99, (4,)), features=True, classes=True, silent=True)
    assert not any(array.any() for array in silent.values())


def test_only_what_is_asked_for_is_said():
    data = device(np.random.default_rng(0), 20, (4,))
    assert describe(data, features=True, classes=False)["classes"].size == 0
    assert describe(data, features=False, classes=True)["mean"].size == 0


def test_a_feature_that_does_not_vary_is_not_stretched():
    x = np.full((20, 2), 7.0, np.float32)
    x[:, 1] = np.arange(20)
    one = merged({"a": told(Dataset(x, np.zeros(20, np.int64), 3))}, 1)
    assert one["scale"][0] == 1.0
    assert one["mean"][0] == 7.0


def test_with_a_majority_no_single_liar_moves_the_mean_beyond_the_honest():
    rng = np.random.default_rng(1)
    said = {f"pi-{i}": told(device(rng, 50, (3,), offset=i)) for i in range(5)}
    lie = {**said["pi-0"], "mean": np.full(3, 1e9), "squares": np.full(3, 1e20)}
    for honest in (False, True):
        one = merged({**said, "liar": said["pi-0"] if honest else lie}, 1, majority=True)
        assert ((one["mean"] > -1) & (one["mean"] < 5)).all()
        assert (1 / one["scale"] < 5).all()
    assert (merged({**said, "liar": lie}, 1)["mean"] > 1e6).all()  # what trust in every device costs


def test_nobody_counts_for_more_than_the_cap_allows():
    rng = np.random.default_rng(1)
    said = {f"pi-{i}": told(device(rng, 50, (1,))) for i in range(4)}
    boast = {"samples": np.array([10**9]), "mean": np.array([100.0]), "squares": np.array([0.0])}
    boast["classes"] = np.array([10**9, 0, 0])
    one = merged({**said, "liar": boast}, 1, cap=5.0)
    assert one["classes"].sum() == pytest.approx(200 + 250)
    assert one["mean"][0] < 100 * 250 / 450 + 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"samples": np.array([-1])},
        {"samples": np.array([2**50])},
        {"samples": np.array([FEWEST - 1]), "classes": np.array([FEWEST - 1, 0, 0])},
        {"samples": np.array([20.0])},
        {"mean": np.array([np.nan, 0, 0, 0])},
        {"mean": np.array([1e30, 0, 0, 0])},
        {"mean": np.zeros(3)},
        {"squares": np.array([-1.0, 0, 0, 0])},
        {"squares": np.array([np.inf, 0, 0, 0])},
        {"classes": np.array([30, -10, 0])},
        {"classes": np.array([1, 1, 1])},
        {"more": np.zeros(1)},
    ],
)
def test_what_no_device_can_have_counted_is_refused(wrong):
    honest = told(device(np.random.default_rng(0), 20, (4,)))
    check(honest, 4, 3)
    with pytest.raises(WireError, match=r"."):
        check({**honest, **wrong}, 4, 3)


def test_rare_classes_weigh_more_within_bounds():
    assert balanced(np.array([90.0, 10.0])).tolist() == pytest.approx([50 / 90, 5.0])
    assert balanced(np.array([1e6, 1.0, 0.0])).tolist() == pytest.approx([0.5, 100.0, 1.0], rel=1e-5)
