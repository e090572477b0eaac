"""What a fleet says of its data: as exact as if all samples were in one place, whoever spoke first, whoever lies."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.base.errors import WireError
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.data.description import FEWEST, balanced, check, describe, merged


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
    deviation = x.std(axis=axes)
    assert (np.abs(one["mean"] - x.mean(axis=axes)) <= 0.005 * deviation + 1e-6 * np.abs(one["mean"])).all()
    np.testing.assert_allclose(1 / one["scale"], deviation, rtol=5e-3)
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


def test_numbers_have_three_digits_and_a_mean_those_that_its_deviation_needs():
    rng = np.random.default_rng(0)
    x = np.stack([rng.normal(1013.25, 4, 5000), rng.normal(0.002, 1e-4, 5000), np.full(5000, 101325.0)], axis=1)
    said = told(Dataset(x.astype(np.float32), (rng.random(5000) < 0.3).astype(np.int64), 3))
    deviation = np.sqrt(said["squares"] / said["samples"])
    bits = np.frexp(deviation)[0] * 2**10
    assert np.array_equal(bits, np.rint(bits))
    assert said["mean"][0] * 64 == round(said["mean"][0] * 64), "steps of a 64th where the deviation is about 4"
    assert (np.abs(said["mean"] - x.mean(axis=0)) <= 0.004 * x.std(axis=0) + 1e-6 * x.mean(axis=0)).all()
    assert said["mean"][2] == 101325.0, "a feature that never varies is not moved by its rounding"
    assert [int(count) % 4 for count in said["classes"]] == [0, 0, 0], "thousands in steps of four"
    assert said["samples"][0] == said["classes"].sum()


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
