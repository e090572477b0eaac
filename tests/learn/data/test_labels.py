"""Labels mean the same everywhere, and what may mean two things is asked."""

from pathlib import Path

import numpy as np
import pytest

from edgefl.base.errors import ConfigError
from edgefl.learn.data.catalog import load
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.data.labels import of_device, settled, understood
from edgefl.learn.data.source import Source

ENTROPY, SQUARED = "cross_entropy", "squared_error"


def source(labels: list[float], classes: int, names: tuple[str, ...] | None = None) -> Source:
    y = np.array(labels, np.int64 if classes else np.float32)
    data = Dataset(np.ones((len(y), 2), np.float32), y, classes, names)
    return Source(data, data, None, "mine")


@pytest.mark.parametrize(
    ("data", "loss", "classes", "words"),
    [
        (source([21.5, 3.0], 0), ENTROPY, None, ["such as 21.5", "task.loss = 'squared_error'"]),
        (source([-1.0, 1.0], 0), ENTROPY, None, ["such as -1", "number the classes 0, 1, 2"]),
        (source([0, 1, 2], 3), SQUARED, None, ["task.classes = 0 if they are targets", "task.classes = 3 if they are"]),
        (source([18, 35, 60], 61), ENTROPY, None, ["3 different labels between 18 and 60", "task.classes = 61 if"]),
        (
            source(list(range(9, 31)), 31),
            ENTROPY,
            None,
            ["22 different labels between 9 and 30", "task.classes = 0 and"],
        ),
        (source([0, 1], 2), ENTROPY, 0, ["task.classes = 0 means real targets", "task.loss = 'squared_error'"]),
        (source([0.5, 1], 0), SQUARED, 2, ["real labels (such as 0.5)", "task.classes = 0"]),
        (source([0, 5], 6), ENTROPY, 3, ["labels go up to 5, the model has 3 classes"]),
        (source([0, 1], 2, ("a", "b")), ENTROPY, ("a", "c"), ["label 'b' is no class of the run (a, c)"]),
    ],
)
def test_what_does_not_fit_or_may_mean_two_things_is_asked(data, loss, classes, words):
    with pytest.raises(ConfigError) as told:
        settled(data, loss, classes)
    assert all(word in str(told.value) for word in words), str(told.value)
    assert "\n" not in str(told.value)


def test_what_is_clear_is_taken_as_it_is():
    assert settled(source([0, 1], 2), ENTROPY, None).train.classes == 2
    assert settled(source([0.5, 1], 0), SQUARED, None).train.classes == 0
    assert settled(source([0, 1], 2), ENTROPY, 5).test.classes == 5
    assert settled(source([0, 1, 2], 3), SQUARED, 3).train.y.dtype == np.int64
    assert settled(source([18, 35, 60], 61), ENTROPY, 61).train.classes == 61


def test_whole_numbers_are_targets_where_the_run_says_so():
    data = settled(source([18, 35, 60], 61), SQUARED, 0).train
    assert (data.classes, data.y.dtype, data.y.tolist()) == (0, np.float32, [18, 35, 60])


def test_names_decide_which_number_a_class_has():
    here = Dataset(np.ones((3, 1)), np.array([0, 1, 1]), 2, ("run", "walk"), numbered=False)
    data = of_device(here, 3, ("walk", "sit", "run"), "device 'pi'")
    assert (data.y.tolist(), data.classes, data.class_names) == ([2, 0, 0], 3, ("walk", "sit", "run"))


def test_two_devices_with_different_texts_agree_on_their_numbers(tmp_path: Path):
    (tmp_path / "a.csv").write_text("1.5,sit\n2.5,walk\n" * 5)
    (tmp_path / "b.csv").write_text("1.5,walk\n2.5,jump\n" * 5)
    names = ("jump", "sit", "walk")
    for name, numbers in (("a", {1.5: 1, 2.5: 2}), ("b", {1.5: 2, 2.5: 0})):
        data = of_device(load(f"csv:{tmp_path / name}.csv").train, 3, names, name)
        assert dict(zip(data.x[:, 0].tolist(), data.y.tolist(), strict=True)) == numbers


def test_texts_without_an_order_are_refused_where_the_run_has_no_names(tmp_path: Path):
    (tmp_path / "a.csv").write_text("1.5,sit\n2.5,walk\n" * 5)
    data = load(f"csv:{tmp_path / 'a.csv'}").train
    with pytest.raises(ConfigError, match=r"has texts as labels \(sit, walk\).*set task.classes .* data.classes"):
        of_device(data, 2, (), "device 'pi'")
    chosen = understood(data, ("walk", "sit"), "here")  # data.classes of the agent file
    assert of_device(chosen, 2, (), "device 'pi'").class_names == ("walk", "sit")


def test_numbers_need_no_names():
    data = source([0, 1], 2).train
    assert of_device(data, 2, ("a", "b"), "pi").class_names == ("a", "b")
    assert of_device(data, 0, (), "pi").classes == 0


def test_an_npz_file_may_name_its_classes(tmp_path: Path):
    np.savez(tmp_path / "a.npz", x=np.ones((10, 2)), y=np.arange(10) % 2, classes=np.array(["no", "yes"]))
    data = load(f"npz:{tmp_path / 'a.npz'}").train
    assert (data.class_names, data.numbered) == (("no", "yes"), True)
