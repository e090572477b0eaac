"""Sources: the real sets as published, the operator's own as given, and one clear line for every mistake."""

import gzip
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from edgefl.base.errors import ConfigError
from edgefl.learn.data.catalog import FOLDERS, data_root, load
from edgefl.learn.data.text import LENGTH, VOCABULARY, tokens
from edgefl.system import user_code

# name: train, test, shape of a sample, classes, owners of training samples
PUBLISHED = {
    "cifar10": (50000, 10000, (3, 32, 32), 10, 0),
    "cifar100": (10000, 2000, (3, 32, 32), 100, 0),
    "emnist_letters": (20800, 4160, (1, 28, 28), 26, 0),
    "fashion_mnist": (60000, 10000, (1, 28, 28), 10, 0),
    "femnist": (14561, 1651, (1, 28, 28), 62, 105),
    "mnist": (60000, 10000, (1, 28, 28), 10, 0),
    "mnist_m": (7000, 2001, (3, 32, 32), 10, 0),
    "sent140": (6954, 1738, (32,), 2, 5841),
    "uci_har": (7352, 2947, (9, 128), 6, 21),
    "usps": (7291, 2007, (1, 16, 16), 10, 0),
    "watch_rehab": (3675, 1002, (6, 100), 7, 8),
}


def here(name):
    folder = data_root() / FOLDERS[name][0]
    if not folder.is_dir():
        pytest.skip(f"{name} is not in {data_root()}; set EDGEFL_DATA to test it")
    return load(name)


def refusal(name, root=None):
    with pytest.raises(ConfigError) as e:
        load(name, root)
    assert "\n" not in str(e.value)
    return str(e.value)


@pytest.mark.night
@pytest.mark.parametrize("name", sorted(FOLDERS))
def test_a_real_set_has_the_published_counts_and_shapes(name):
    source = here(name)
    train, test, shape, classes, owners = PUBLISHED[name]
    assert (len(source.train), len(source.test), source.train.shape, source.train.classes) == (
        train,
        test,
        shape,
        classes,
    )
    assert source.train.counts().sum() == train
    assert len(source.train.counts()) == classes
    assert source.train.counts().min() > 0
    assert source.train.x.dtype == (np.int64 if name == "sent140" else np.float32)
    assert source.train.y.dtype == np.int64
    assert (0 if source.groups is None else len(np.unique(source.groups))) == owners
    if len(shape) == 3:
        assert (source.train.x.min(), source.train.x.max()) == (0, 1)


def test_mnist_has_the_published_mean_and_deviation():
    x = here("mnist").train.x
    assert x.mean(dtype=np.float64) == pytest.approx(0.1307, abs=1e-4)
    assert np.sqrt((x * x).mean(dtype=np.float64) - 0.1306605**2) == pytest.approx(0.3081, abs=1e-4)


@pytest.mark.parametrize("name", ["uci_har", "watch_rehab"])
def test_sensor_channels_are_standardised_by_the_training_part(name):
    x = here(name).train.x
    np.testing.assert_allclose(x.mean(axis=(0, 2), dtype=np.float64), 0, atol=1e-5)
    np.testing.assert_allclose(x.std(axis=(0, 2), dtype=np.float64), 1, atol=1e-5)


def test_the_last_two_people_with_a_watch_are_the_test():
    assert set(here("watch_rehab").groups) == set(range(1, 9))


def test_digits_come_without_a_download_and_always_split_alike():
    one, two = load("digits"), load("digits")
    assert (len(one.train), len(one.test), one.train.shape) == (1438, 359, (1, 8, 8))
    assert (one.train.x.dtype, one.train.y.dtype) == (np.float32, np.int64)
    assert (one.train.x.min(), one.train.x.max()) == (0, 1)
    assert np.array_equal(one.train.x, two.train.x)


def test_digits_are_those_of_scikit_learn():
    theirs, ours = load_digits(), load("digits")
    x, y = (np.concatenate([getattr(part, name) for part in (ours.train, ours.test)]) for name in ("x", "y"))
    assert sorted(zip(x.reshape(-1, 64).tolist(), y.tolist(), strict=True)) == sorted(
        zip((theirs.data / 16).tolist(), theirs.target.tolist(), strict=True)
    )


def test_digits_without_scikit_learn_say_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    assert "pip install 'edgefl[coordinator]'" in refusal("digits")


def test_blobs_can_be_told_apart_by_their_means():
    source = load("synthetic")
    assert (len(source.train), len(source.test), source.train.shape) == (1000, 200, (20,))
    means = np.stack([source.train.x[source.train.y == c].mean(axis=0) for c in range(10)])
    guess = np.argmin(((source.test.x[:, None] - means) ** 2).sum(axis=2), axis=1)
    assert (guess == source.test.y).mean() > 0.9


def test_synthetic_devices_hold_at_least_45_training_samples_each():
    source = load("synthetic(0.5, 0.5)")
    assert source.train.shape == (20,)
    counts = np.bincount(source.groups)
    assert (len(counts), counts.min() >= 45) == (30, True)
    assert len(source.test) == pytest.approx(len(source.train) / 9, rel=0.05)


def test_synthetic_inputs_have_the_variances_of_the_paper():
    x = load("synthetic(iid,60,10)").train.x
    np.testing.assert_allclose(x.var(axis=0), np.arange(1, 61) ** -1.2, rtol=0.1)


def test_b_moves_the_inputs_of_the_devices_apart():
    def spread(name):
        source = load(name)
        return np.std([source.train.x[source.groups == k].mean() for k in range(30)])

    assert spread("synthetic(0,0)") < spread("synthetic(0,1)") < spread("synthetic(0,5)")


def test_the_first_draw_needs_no_name_and_never_changes():
    plain, named = load("synthetic(0,0,20,2)"), load("synthetic(0, 0, 20, 2, draw = 0)")
    assert (plain.train.x == named.train.x).all()
    assert (len(plain.train), len(plain.test), int(plain.train.y.sum())) == (6160, 701, 4045)  # as ever
    np.testing.assert_allclose(plain.train.x[0, :3], [-0.602487, -0.331989, -0.854004], atol=1e-5)


@pytest.mark.parametrize("kind", ["0,0", "iid", "0,0,20,2", "iid,20,2"])
def test_another_draw_is_other_data_of_the_same_recipe(kind):
    one, other, again = (load(f"synthetic({kind}{draw})").train for draw in ("", ",draw=7", ",draw=7"))
    assert (one.shape, one.classes) == (other.shape, other.classes)
    assert len(one) != len(other)
    assert (other.x == again.x).all()


@pytest.mark.parametrize(
    "name",
    [
        "synthetic(1)",
        "synthetic(a,b)",
        "synthetic(-1,0)",
        "synthetic(1,1",
        "synthetic(1,1,0,5)",
        "synthetic(1,1,draw)",
        "synthetic(1,1,draw=-1)",
        "synthetic(draw=1)",
        "synthetic(1,1,draw=1,20,2)",
    ],
)
def test_a_wrong_synthetic_name_is_refused(name):
    assert name in refusal(name)


def test_tokens_are_hashed_padded_and_cut():
    short = tokens("Not GOOD, @anna! http://a.b/c")
    assert short[:6].all()
    assert not short[6:].any()
    assert np.array_equal(short, tokens("not good , @bert ! https://other"))
    assert tokens("word " * 100).shape == (LENGTH,)
    assert all(0 < tokens(str(i))[0] < VOCABULARY for i in range(1000))


def test_an_npz_file_without_a_test_part_gives_a_fifth_to_it(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.arange(20.0).reshape(10, 2), y=np.arange(10) % 3, group=np.arange(10) * 7)
    source = load(f"npz:{tmp_path / 'a.npz'}")
    assert (len(source.train), len(source.test), source.train.classes) == (8, 2, 3)
    assert (source.train.x.dtype, source.train.y.dtype) == (np.float32, np.int64)
    assert np.array_equal(source.groups, source.train.x[:, 0] / 2 * 7)


def test_an_npz_file_with_a_test_part_is_taken_as_it_is(tmp_path):
    y = np.array([0, 1, 1])
    np.savez(
        tmp_path / "a.npz",
        x_train=np.full((3, 4, 4), 255, np.uint8),
        y_train=y,
        x_test=np.zeros((2, 4, 4), np.uint8),
        y_test=y[:2] + 1,
        group=np.array(["b", "a", "b"]),
    )
    source = load(f"npz:{tmp_path / 'a.npz'}")
    assert (source.train.x == 1).all()
    assert (source.train.classes, source.test.classes) == (3, 3)
    assert source.groups.tolist() == [1, 0, 1]


def test_an_npz_file_may_say_how_many_classes_there_are(tmp_path):
    x, y = np.ones((5, 2)), np.zeros(5)
    np.savez(tmp_path / "number.npz", x=x, y=y, classes=4)
    np.savez(tmp_path / "names.npz", x=x, y=y, classes=np.array(["sit", "walk", "run"]))
    np.savez(tmp_path / "real.npz", x=x, y=y, classes=0)
    counts = [load(f"npz:{tmp_path / f'{n}.npz'}").train.classes for n in ("number", "names", "real")]
    assert counts == [4, 3, 0]


def test_labels_that_are_not_whole_numbers_are_real_targets(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.ones((5, 2)), y=np.arange(5) / 2)
    source = load(f"npz:{tmp_path / 'a.npz'}")
    assert (source.train.classes, source.train.y.dtype) == (0, np.float32)


def test_token_numbers_in_an_npz_file_stay_whole(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.ones((5, 2), np.int64), y=np.arange(5) % 2)
    assert load(f"npz:{tmp_path / 'a.npz'}").train.x.dtype == np.int64


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"x": np.ones((0, 2)), "y": np.ones(0)}, "is empty"),
        ({"x": np.ones((1, 2)), "y": np.ones(1)}, "has 1 sample"),
        ({"x": np.ones((4, 2)), "y": np.ones(3)}, "4 samples but 3 labels"),
        ({"x": np.array([[1.0], [2], [np.nan]]), "y": np.ones(3)}, "NaN or infinity in sample 2"),
        ({"x": np.ones((3, 2)), "y": np.array([0, 1, np.nan])}, "NaN or infinity among its labels"),
        ({"x": np.ones((3, 2)), "y": np.array([0, 1, -1]), "classes": 2}, "labels from -1 to 1; expected 0 to 1"),
        ({"x": np.ones((3, 2)), "y": np.array([0, 1, 5]), "classes": 3}, "labels from 0 to 5; expected 0 to 2"),
        ({"x": np.ones((3, 2)), "y": np.array([0, 1, 0.5]), "classes": 3}, "not whole numbers"),
        ({"x": np.ones(3), "y": np.ones(3)}, "expected numbers of shape"),
        ({"x": np.ones((3, 2)), "y": np.array(["a", "b", "c"])}, "y holds texts, expected numbers; np.unique"),
        ({"x": np.ones((3, 2)), "y": np.ones(3), "group": np.ones(2)}, "give one for each"),
        ({"x": np.ones((3, 2))}, "lacks y; it has x"),
        ({"x_train": np.ones((3, 2)), "y_train": np.ones(3)}, "lacks x_test, y_test"),
        ({"x": np.array([[{}], [{}]]), "y": np.ones(2)}, "cannot be read as data"),
    ],
)
def test_an_npz_file_that_cannot_be_trained_on_is_refused(tmp_path, content, message):
    np.savez(tmp_path / "a.npz", **content)
    assert message in refusal(f"npz:{tmp_path / 'a.npz'}")


def test_parts_of_an_npz_file_must_agree(tmp_path):
    y = np.array([0, 1])
    np.savez(tmp_path / "a.npz", x_train=np.ones((2, 3)), y_train=y, x_test=np.ones((2, 4)), y_test=y)
    assert "both parts must agree" in refusal(f"npz:{tmp_path / 'a.npz'}")
    np.savez(tmp_path / "b.npz", x_train=np.ones((2, 3)), y_train=y, x_test=np.ones((2, 3)), y_test=y, group=y[:1])
    assert "give one owner for each" in refusal(f"npz:{tmp_path / 'b.npz'}")


@pytest.mark.parametrize("kind", ["npz", "csv"])
def test_a_file_that_is_not_there_is_named(tmp_path, kind):
    assert f"{tmp_path / 'gone'} is not a file" in refusal(f"{kind}:{tmp_path / 'gone'}")


def test_rubbish_and_single_arrays_are_not_npz_files(tmp_path):
    (tmp_path / "a.npz").write_bytes(b"PK\x03\x04 rubbish")
    assert "cannot be read as data" in refusal(f"npz:{tmp_path / 'a.npz'}")
    np.save(tmp_path / "b.npy", np.ones(3))
    assert "not an .npz archive" in refusal(f"npz:{tmp_path / 'b.npy'}")


@pytest.mark.parametrize(
    "text",
    [
        "a,label,b\n" + "1,0,2\n1,1,2\n" * 5,
        '"a","Y","b"\n' + "1,0,2\n1,1,2\n" * 5,
        "\ufeffa,b,c\n" + "1,2,0\n\n1,2,1\n" * 5,
        "1,2,0\n1,2,1\n" * 5,
        "# a,b,c\n" + "1,2,0\n1,2,1\n" * 5,
        "0,1,label\n" + "1,2,0\n1,2,1\n" * 5,
        "1;2;0\n1,0;2,0;1\n" * 5,
        "a\tb\tc\n" + "1\t2\t0\n1\t2\t1\n" * 5,
        "1.0 2.0 0.0\n1.0 2.0 1.0\n" * 5,
        '1,2,"no"\n1,2,"yes"\n' * 5,
        "class;a;b\n" + "y;1;2\nn;1;2\n" * 5,
        "1,2,y\n1,2,n\n" * 5,
    ],
)
def test_a_csv_file_has_its_label_in_the_named_or_the_last_column(tmp_path, text):
    (tmp_path / "a.csv").write_text(text, "utf8")
    source = load(f"csv:{tmp_path / 'a.csv'}")
    assert len(source.train) + len(source.test) == 10
    assert np.array_equal(source.train.x, np.tile(np.float32([1, 2]), (8, 1)))
    assert source.train.counts().sum() == 8
    assert source.train.classes == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("a,b,label\n", "is empty"),
        ("1\n2\n", "has one column"),
        ("1,2,0\n1,x,1\n", "line 2, column 2: 'x' is not a number"),
        ("1,2,0\n1,1\n", "line 2: has 2 cells, the first line has 3"),
        ("1,,0\n1,2,1\n", "line 1, column '2': the cell is empty; fill it, or set data.empty to 'drop'"),
        ("a,label\n2,1\n2026-11-01 10:00,1\n", "line 3, column 1 'a': '2026-11-01 10:00' is a time; set data.time"),
        ("1,2,0\n1,2,one\n1,2,1\n", "line 2: the label is 'one', most others are numbers"),
        ("1,2,a\n1,2,b\n1,2,1\n", "line 3: the label is '1', most others are texts"),
        ("a,label\n1,\n2,b\n", "line 2: the label is empty"),
        ("".join(f"1,note {i}\n" for i in range(60)), "60 different texts as labels in 60 lines"),
        ("1,nan,0\n1,nan,1\n", "line 1, column '2': the cell is empty"),
        ("1,inf,0\n1,2,1\n", "NaN or infinity in sample 0"),
    ],
)
def test_a_csv_file_that_cannot_be_trained_on_is_refused(tmp_path, text, message):
    (tmp_path / "a.csv").write_text(text)
    assert message in refusal(f"csv:{tmp_path / 'a.csv'}")


MODULE = """
import numpy as np
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.data.source import Source
x, y = np.ones((10, 2)), np.arange(10) % 2
def pair(): return x, y
def whole(): return Dataset(x, y, 5)
def source(): return Source(Dataset(x, y, 2), Dataset(x, y, 2), y, "mine")
def nothing(): return None
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    (tmp_path / "mine_for_sources.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    words = ("pair", "whole", "source", "sorce", "nothing")
    user_code.allow([*(f"mine_for_sources:{word}" for word in words), "no_such_module_here:load"])
    yield "mine_for_sources"
    sys.modules.pop("mine_for_sources", None)


@pytest.mark.parametrize(("function", "train", "classes"), [("pair", 8, 2), ("whole", 8, 5), ("source", 10, 2)])
def test_a_function_may_give_a_pair_a_dataset_or_a_source(mine, function, train, classes):
    source = load(f"{mine}:{function}")
    assert (len(source.train), source.train.classes, source.name) == (train, classes, f"{mine}:{function}")
    assert (source.train.x.dtype, source.train.y.dtype) == (np.float32, np.int64)


def test_a_function_that_is_missing_or_gives_something_else_is_refused(mine):
    assert "did you mean 'source'?" in refusal(f"{mine}:sorce")
    assert "gave NoneType" in refusal(f"{mine}:nothing")
    assert "and on PYTHONPATH" in refusal("no_such_module_here:load")


def test_an_unknown_name_gets_the_nearest_known_one():
    assert "unknown data set 'fashion-mnist'; did you mean 'fashion_mnist'?" in refusal("fashion-mnist")


@pytest.mark.parametrize("name", ["npz:", ":load", "pack.mod:"])
def test_half_a_name_is_refused(name):
    assert "is half a name" in refusal(name)


@pytest.mark.parametrize("name", sorted(FOLDERS))
def test_a_set_that_is_not_there_names_itself_the_folder_and_the_way_out(tmp_path, name):
    message = refusal(name, tmp_path)
    assert f"data set '{name}'" in message
    assert str(tmp_path / FOLDERS[name][0]) in message
    assert "--data-root" in message
    assert "EDGEFL_DATA" in message
    assert "digits" in message


def test_broken_files_of_the_data_root_are_named(tmp_path):
    raw = tmp_path / "mnist" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    first = raw / "train-images-idx3-ubyte.gz"
    first.write_bytes(gzip.compress(bytes([0, 0, 8, 3]) + b"\0\0\0\1" * 3))  # 1x1x1, and then no pixel
    assert f"{first}: cannot be read as data" in refusal("mnist", tmp_path)
    first.write_bytes(b"not gzip")
    assert f"{first}: cannot be read as data" in refusal("mnist", tmp_path)
    (tmp_path / "usps").mkdir()
    np.savez(tmp_path / "usps" / "usps.npz", x_train=np.ones((1, 16, 16)))
    assert "lacks 'y_train'" in refusal("usps", tmp_path)


def test_the_data_root_is_the_given_one_then_the_environments_then_the_shared_then_the_cache(tmp_path, monkeypatch):
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.delenv("EDGEFL_DATA", raising=False)
    assert data_root() == Path.home() / ".cache" / "edgefl"
    (tmp_path / "shared" / "data").mkdir(parents=True)
    assert data_root().resolve() == tmp_path / "shared" / "data"
    monkeypatch.setenv("EDGEFL_DATA", "~/sets")
    assert data_root() == Path.home() / "sets"
    assert data_root(work) == work
