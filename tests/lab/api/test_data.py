"""Every kind of data that people have becomes the same samples, labels and owners."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import Subset, TensorDataset

from edgefl.base.errors import ConfigError
from edgefl.lab.api.data import given_data
from edgefl.lab.api.samples import samples
from edgefl.learn.tasks.fields import unpack

X = np.arange(60, dtype=np.float32).reshape(20, 3)
Y = np.arange(20) % 2
TENSORS = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))


def source(data: Any, test: Any = None, loss: str | None = None) -> Any:
    held: list[Any] = []
    kept = "edgefl.learn.session_objects:data"
    data_of_run = given_data(data, test, loss, lambda _, thing: held.append(thing) or kept)
    return held[0](), data_of_run


@pytest.mark.parametrize("data", [(X, Y), (X.tolist(), Y.tolist()), TENSORS, Subset(TENSORS, list(range(20)))])
def test_pairs_lists_and_torch_datasets_are_the_same(data: Any) -> None:
    taken = samples(data)
    assert np.array_equal(taken.x, X)
    assert np.array_equal(taken.y, Y)


def test_a_hugging_face_dataset_brings_the_names_of_its_classes() -> None:
    datasets = pytest.importorskip("datasets", reason="pip install datasets")
    table = datasets.Dataset.from_dict({"sensor": X.tolist(), "state": Y.tolist()})
    labelled = table.cast(
        datasets.Features(sensor=table.features["sensor"], state=datasets.ClassLabel(names=["a", "b"]))
    )
    taken = samples(labelled)
    assert (taken.x.tolist(), taken.y.tolist(), taken.class_names) == (X.tolist(), Y.tolist(), ("a", "b"))
    columns = datasets.Dataset.from_dict({"u": X[:, 0], "v": X[:, 1], "w": X[:, 2], "label": Y})
    both, _ = source(datasets.DatasetDict({"train": columns, "test": columns.select(range(5))}))
    assert np.array_equal(both.train.x, X)
    assert len(both.test) == 5


def test_texts_are_not_guessed_at() -> None:
    datasets = pytest.importorskip("datasets", reason="pip install datasets")
    with pytest.raises(ConfigError, match="column 'text': samples and labels must be numbers"):
        samples(datasets.Dataset.from_dict({"text": ["a", "b"], "label": [0, 1]}))
    with pytest.raises(ConfigError, match="0 of them are labels; keep the samples and one label"):
        samples(datasets.Dataset.from_dict({"u": [1.0], "v": [2.0]}))


def test_pictures_get_their_channels_in_front() -> None:
    image = pytest.importorskip("PIL.Image", reason="pip install pillow")
    pixels = np.random.default_rng(0).integers(0, 255, (4, 6, 5, 3), dtype=np.uint8)
    pictures = [(image.fromarray(one), i % 2) for i, one in enumerate(pixels)]
    assert np.array_equal(samples(pictures).x, np.moveaxis(pixels, -1, 1))


@given(sizes=st.lists(st.integers(1, 9), min_size=2, max_size=6))
def test_every_client_trains_and_those_with_two_samples_are_tested(sizes: list[int]) -> None:
    clients = {f"c{i}": (np.full((n, 2), i, np.float32), np.arange(n) % 2) for i, n in enumerate(sizes)}
    if max(sizes) < 2:
        return
    divided, about = source(clients)
    assert about.owners == tuple(clients)
    assert set(divided.groups) == set(range(len(sizes)))
    for i, n in enumerate(sizes):
        assert (divided.train.x[divided.groups == i] == i).all()
        assert int((divided.test.x[:, 0] == i).sum()) + int((divided.groups == i).sum()) == n
        assert (divided.test.x[:, 0] == i).any() == (n > 1)


def test_groups_are_owners_by_name() -> None:
    divided, about = source((X, Y, ["b", "a"] * 10))
    assert about.owners == ("a", "b")
    assert set(divided.train.x[divided.groups == 0][:, 0]) <= set(X[1::2, 0])


@pytest.mark.parametrize(
    ("y", "loss", "classes", "suits"),
    [
        (Y, None, 2, None),
        (Y.astype(np.float64), None, 0, "squared_error"),
        (Y.astype(np.float64), "cross_entropy", 2, "cross_entropy"),
        (Y, "squared_error", 0, "squared_error"),
        (X[:, :2], None, 0, "squared_error"),
    ],
)
def test_labels_are_classes_or_real_numbers_by_their_type_or_by_the_loss(
    y: Any, loss: str | None, classes: int, suits: str | None
) -> None:
    divided, about = source((X, y), loss=loss)
    assert (divided.train.classes, about.loss) == (classes, suits)


def test_a_class_that_only_the_test_part_has_is_a_class() -> None:
    divided, _ = source((X, Y), test=(X[:3], np.array([0, 1, 2])))
    assert (divided.train.classes, len(divided.train), len(divided.test)) == (3, 20, 3)


def test_samples_of_different_shapes_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"samples of shape \(2,\) and \(3,\)"):
        samples([(np.zeros(3), 0), (np.zeros(2), 1), (np.zeros(3), 0)])


A, B = X, np.arange(40).reshape(20, 2) % 7


@pytest.mark.parametrize(
    ("data", "names"),
    [
        (((A, B), Y), ["input_1", "input_2"]),
        (({"picture": A, "words": B}, Y), ["picture", "words"]),
        ([((A[i], B[i]), Y[i]) for i in range(20)], ["input_1", "input_2"]),
        ([({"picture": A[i], "words": B[i]}, Y[i]) for i in range(20)], ["picture", "words"]),
        ([(A[i], B[i], Y[i]) for i in range(20)], ["input_1", "input_2"]),
        (TensorDataset(*map(torch.from_numpy, (A, B, Y))), ["input_1", "input_2"]),
        ({"one": ((A[:9], B[:9]), Y[:9]), "two": ((A[9:], B[9:]), Y[9:])}, ["input_1", "input_2"]),
    ],
)
def test_several_inputs_come_as_a_tuple_or_by_name(data: Any, names: list[str]) -> None:
    whole, _ = source(data, test=data)
    assert [(field.name, field.shape, field.whole) for field in whole.train.form.inputs] == [
        (names[0], (3,), False),
        (names[1], (2,), True),
    ]
    rows = unpack(whole.train.form.inputs, whole.train.x)
    assert np.array_equal(rows[names[0]], A)
    assert np.array_equal(rows[names[1]], B)
    assert np.array_equal(whole.train.y, Y)


def test_columns_of_a_hugging_face_dataset_are_inputs_by_name() -> None:
    datasets = pytest.importorskip("datasets", reason="pip install datasets")
    columns = datasets.Dataset.from_dict({"input_ids": B.tolist(), "mask": A.tolist(), "label": Y})
    taken = samples(columns)
    assert isinstance(taken.x, dict)
    assert np.array_equal(taken.x["input_ids"], B)
    assert np.array_equal(taken.x["mask"], A)


def test_a_tuple_of_numbers_is_a_row() -> None:
    taken = samples([((1.0, 2.0), 0), ((3.0, 4.0), 1), ((5.0, 6.0), 0)])
    assert np.array_equal(taken.x, [[1, 2], [3, 4], [5, 6]])


def test_clients_and_items_have_the_same_parts() -> None:
    with pytest.raises(ConfigError, match=r"data\['two'\] has as x one array, data\['one'\] has input_1, input_2"):
        source({"one": ((A, B), Y), "two": (A, Y)})
    with pytest.raises(ConfigError, match="its items have different parts; all need input_1, input_2"):
        samples([((A[0], B[0]), 0), (A[1], 1), ((A[2], B[2]), 0)])


def test_labels_by_name_and_of_any_shape_are_left_to_the_kind_of_task() -> None:
    whole, about = source((X, {"sort": Y, "size": X[:, 0]}))
    assert [field.name for field in whole.train.form.labels] == ["sort", "size"]
    assert about.loss is None
    masks, about = source((X, np.zeros((20, 4, 4), int)))
    assert (masks.train.form.labels[0].shape, about.loss) == ((4, 4), None)
