"""Augmentation: what each change does, that it follows from seed, round and device, and whose code runs."""

import numpy as np
import pytest

from edgefl.base.errors import ConfigError
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.job.run.work import Worker
from edgefl.learn.algorithms import registry
from edgefl.learn.algorithms.fedavg import FedAvg
from edgefl.learn.contract import Task
from edgefl.learn.data.augment import augmented
from edgefl.learn.data.custom import dataset
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.tasks.kinds import KINDS, formed
from edgefl.sim.emulator import emulate
from edgefl.sim.loop import simulate


def data(*shape, samples=50):
    x = np.random.default_rng(1).standard_normal((samples, *shape)).astype(np.float32)
    return Dataset(x, np.zeros(samples, np.int64), 2)


def changed(word, some):
    return augmented(some, (word,), np.random.default_rng(7)).x


def test_a_flip_mirrors_about_half_of_the_images():
    some = data(2, 4, 5)
    x = changed("flip", some)
    same, mirrored = (
        np.array([(a == b).all() for a, b in zip(x, y, strict=True)]) for y in (some.x, some.x[..., ::-1])
    )
    assert (same ^ mirrored).all()
    assert 10 < mirrored.sum() < 40


def test_a_crop_is_a_window_of_the_padded_image():
    some = data(2, 4, 5)
    for image, moved in zip(some.x, changed("crop=1", some), strict=True):
        wide = np.pad(image, ((0, 0), (1, 1), (1, 1)))
        windows = [wide[:, i : i + 4, j : j + 5] for i in range(3) for j in range(3)]
        assert any((moved == window).all() for window in windows)


def test_a_shift_repeats_the_edge():
    some = data(2, 9)
    for series, moved in zip(some.x, changed("shift=2", some), strict=True):
        wide = np.pad(series, ((0, 0), (2, 2)), mode="edge")
        assert any((moved == wide[:, i : i + 9]).all() for i in range(5))


def test_noise_is_in_units_of_each_channels_spread():
    some = data(2, 400)
    some.x[:, 1] *= 10
    gap = changed("noise=0.5", some) - some.x
    np.testing.assert_allclose(gap.std(axis=(0, 2)), [0.5, 5.0], rtol=0.05)


def test_scale_is_one_factor_for_each_channel_of_a_sample():
    some = data(3, 8)
    factors = changed("scale=0.2", some) / some.x
    assert np.ptp(factors, axis=2).max() < 1e-4
    assert factors[:, :, 0].std() == pytest.approx(0.2, rel=0.25)


@pytest.mark.parametrize(
    ("word", "some", "says"),
    [
        ("flip", data(4), r"'flip' is for images \(channels, height, width\), and samples have shape \[4\]"),
        ("shift=1", data(1, 4, 4), "is for series"),
        ("flop", data(4), "is not known; did you mean 'flip'"),
        ("crop=0.5", data(1, 4, 4), "write it as 'crop=2'"),
        ("noise=much", data(4), "write it as 'noise=0.1'"),
        ("noise", Dataset(np.zeros((3, 4), np.int64), np.zeros(3, np.int64), 2), "of type int64"),
        (
            "flip",
            Dataset(np.zeros((3, 1, 4, 4), np.float32), np.zeros((3, 4, 4), np.int64), 2),
            "away from their labels",
        ),
    ],
)
def test_what_cannot_be_changed_so_is_refused(word, some, says):
    with pytest.raises(ConfigError, match=says):
        changed(word, some)


def a_run(**more):
    table = {
        "run": {"rounds": 3, "seed": 2},
        "task": {"data": "synthetic", "model": "softmax", "partition": {"kind": "iid", "devices": 3}, **more},
        "algorithm": {"name": "fedavg", "batches": 2},
    }
    return parse(RunFile, table, "run.toml", (), {})


def test_loop_and_emulator_train_on_the_same_samples_and_others_than_without():
    models = set()
    for words in ([], ["noise=0.2", "scale"]):
        job, held = jobs.prepare(a_run(augment=words))
        devices = dict(zip(jobs.device_names(3), held.devices, strict=True))
        looped = simulate(job, devices).sha256()
        assert emulate(job, devices).sha256() == looped
        models.add(looped)
    assert len(models) == 2


def test_a_round_has_its_own_samples_and_a_device_too():
    some = data(4)
    worker = Worker("job", "a", FedAvg(augment=("noise",)), None, some, None, None, 3)
    other = Worker("job", "b", FedAvg(augment=("noise",)), None, some, None, None, 3)
    first, again, next_round, elsewhere = (
        one._samples(Task(round, np.zeros(1, np.float32))).x
        for one, round in ((worker, 1), (worker, 1), (worker, 2), (other, 1))
    )
    assert (first == again).all()
    assert (first != next_round).any()
    assert (first != elsewhere).any()


def test_a_message_names_no_code_that_the_device_did_not_choose():
    with pytest.raises(ConfigError, match=r"os:system.*compute.factories"):
        registry.algorithm({"name": "fedavg", "augment": ["os:system"]}, allowed=frozenset())


def test_it_is_said_in_task_and_not_beside_privacy():
    table = {"rounds": {"cohort": 2}, "algorithm": {"name": "fedprox", "augment": ["flip"]}}
    with pytest.raises(ConfigError, match=r"say it in task\.augment"):
        parse(RunFile, table, "run.toml", (), {})
    private = {"mechanism": "output", "clip": 1.0, "sigma": 1.0}
    table = {
        "rounds": {"cohort": 2},
        "algorithm": {"name": "fedprox"},
        "task": {"augment": ["flip"]},
        "privacy": private,
    }
    with pytest.raises(ConfigError, match=r"\[privacy\] promises is about samples as they are"):
        parse(RunFile, table, "run.toml", (), {})


def of_kind(kind, x, y):
    raw = dataset(x, y, None, kind)
    return formed(raw, KINDS[kind].form((raw,), None, None, kind), kind)


def images(*shape):
    return np.random.default_rng(2).random((30, *shape)).astype(np.float32)


@pytest.mark.parametrize("word", ["flip", "crop=2"])
def test_masks_move_with_their_images_and_what_comes_in_is_not_known(word):
    x = images(1, 6, 6)
    some = of_kind("segmentation", x, (x[:, 0] > 0.5).astype(int))
    moved = augmented(some, (word,), np.random.default_rng(7))
    assert not np.array_equal(moved.x, some.x)
    masks, known = moved.y.reshape(30, 6, 6), moved.x[:, 0] > 0
    np.testing.assert_array_equal(masks[known], (moved.x[:, 0] > 0.5)[known])
    np.testing.assert_array_equal(masks[~known], -1)
    assert (~known).any() == word.startswith("crop")


def test_labels_of_a_series_move_with_it():
    x = images(2, 9)
    some = of_kind("segmentation", x, (x[:, 0] > 0.5).astype(int))
    moved = augmented(some, ("shift=3", "noise=0.0"), np.random.default_rng(7))
    np.testing.assert_array_equal(moved.y, moved.x[:, 0] > 0.5)


def test_an_autoencoder_learns_the_sample_that_was_moved_without_the_noise():
    some = of_kind("autoencoder", images(2, 4, 4), np.zeros(30, int))
    moved = augmented(some, ("flip",), np.random.default_rng(7))
    np.testing.assert_array_equal(moved.y[:, :-1], moved.x.reshape(30, -1))
    np.testing.assert_array_equal(moved.y[:, -1], some.y[:, -1])
    noisy = augmented(some, ("noise=0.5", "flip"), np.random.default_rng(7))
    assert not np.allclose(noisy.y[:, :-1], noisy.x.reshape(30, -1), atol=0.01)


def test_several_labels_of_an_image_stay_where_they_are():
    some = of_kind("multilabel", images(1, 4, 4), np.arange(60).reshape(30, 2) % 2)
    moved = augmented(some, ("flip", "scale=0.1"), np.random.default_rng(7))
    np.testing.assert_array_equal(moved.y, some.y)


@pytest.mark.parametrize(
    ("kind", "x", "y", "words"),
    [
        ("segmentation", images(1, 6, 6), np.arange(120).reshape(30, 2, 2) % 3, "away from their labels"),
        ("heads", images(1, 4, 4), {"mask": np.zeros((30, 4, 4), int)}, r"away from their labels mask \[4, 4\]"),
        ("next_token", np.ones((30, 4), int), np.ones((30, 4), int), "changes real numbers"),
        ("multilabel", {"a": images(1, 4, 4), "b": images(2)}, np.ones((30, 2), int), "these have several inputs"),
    ],
)
def test_what_cannot_be_moved_with_its_labels_is_refused_in_one_line(kind, x, y, words):
    with pytest.raises(ConfigError, match=words):
        augmented(of_kind(kind, x, y), ("flip",), np.random.default_rng(7))
