"""Named arrays on disk: written whole or not at all, trusted only when the hash agrees."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from edgefl.base.errors import StoreError
from edgefl.system.store import load, opened, save, sealed, write_atomically

ARRAYS = {
    "vector": np.arange(5, dtype=np.float32),
    "matrix": np.arange(6, dtype=np.int64).reshape(2, 3),
    "transposed": np.arange(6, dtype=np.float64).reshape(2, 3).T,
    "number": np.array(3.5),
    "nothing": np.zeros((0, 4), np.float32),
    "flags": np.array([True, False]),
    "words": np.array(["pi-04", "überall", ""]),
    "table of words": np.array([["a", "bc"], ["d", "e"]]),
    "word": np.array("alone"),
    "no word": np.array(""),
    "no words": np.zeros(0, "U7"),
}


@pytest.fixture
def file(tmp_path):
    return tmp_path / "state.safetensors"


def test_what_is_saved_is_loaded(file):
    save(file, ARRAYS, {"round": 3, "name": "große Runde", "nested": {"a": [1, None]}})
    arrays, about = load(file)
    assert about == {"round": 3, "name": "große Runde", "nested": {"a": [1, None]}}
    assert set(arrays) == set(ARRAYS)


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_comes_back_with_its_shape_its_kind_and_its_numbers(file, name):
    save(file, {name: ARRAYS[name]}, {})
    back, expected = load(file)[0][name], ARRAYS[name]
    assert back.shape == expected.shape
    assert back.dtype.kind == expected.dtype.kind
    assert np.array_equal(back, expected)
    if expected.dtype.kind != "U":
        assert back.dtype == expected.dtype


def test_nothing_is_a_state_too(file):
    save(file, {}, {})
    assert load(file) == ({}, {})


def test_every_flipped_byte_is_noticed(file):
    save(file, {"w": np.ones(2, np.float32), "who": np.array(["a"])}, {"round": 1})
    good = file.read_bytes()
    for i in range(len(good)):
        bad = bytearray(good)
        bad[i] ^= 0x40
        file.write_bytes(bad)
        with pytest.raises(StoreError, match="damaged"):
            load(file)


def test_every_cut_is_noticed(file):
    save(file, {"w": np.ones(2, np.float32)}, {})
    good = file.read_bytes()
    for length in range(len(good)):
        file.write_bytes(good[:length])
        with pytest.raises(StoreError, match="damaged"):
            load(file)


def test_a_file_that_is_not_ours_is_named(file):
    file.write_bytes(b"something else")
    with pytest.raises(StoreError, match=r"state\.safetensors: damaged"):
        load(file)


def test_a_file_that_is_not_there_is_named(file):
    with pytest.raises(StoreError, match=r"state\.safetensors: cannot be read \(No such file"):
        load(file)


# ---- whole or not at all -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_no_other(file, monkeypatch, broken):
    write_atomically(file, b"old")

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os if broken == "fsync" else Path, broken, full)
    with pytest.raises(StoreError, match=r"state\.safetensors: cannot be written \(No space left on device\); free"):
        write_atomically(file, b"new")
    assert file.read_bytes() == b"old"
    assert list(file.parent.iterdir()) == [file]


def test_a_write_replaces_the_old_file(file):
    write_atomically(file, b"a longer old text")
    write_atomically(file, b"new")
    assert file.read_bytes() == b"new"
    assert list(file.parent.iterdir()) == [file]


def test_folders_are_made_on_the_way(tmp_path):
    write_atomically(tmp_path / "a" / "b" / "c", b"x")
    assert (tmp_path / "a" / "b" / "c").read_bytes() == b"x"


def test_a_folder_that_cannot_be_made_is_the_disk_s_fault(tmp_path):
    (tmp_path / "a").write_bytes(b"a file stands where the folder should")
    with pytest.raises(StoreError, match="cannot be written"):
        write_atomically(tmp_path / "a" / "b" / "c", b"x")


def test_a_link_that_somebody_laid_is_not_written_through(tmp_path):
    theirs = tmp_path / "theirs"
    theirs.write_bytes(b"precious")
    (tmp_path / ".ours.new").symlink_to(theirs)
    write_atomically(tmp_path / "ours", b"data")
    assert theirs.read_bytes() == b"precious"
    assert not (tmp_path / "ours").is_symlink()


@pytest.mark.parametrize("about", [{}, {"round": 3}, {"name": 'große "Runde"\\\n'}, {"a": "x" * 1000}])
def test_without_arrays_it_is_still_a_file_that_any_reader_of_safetensors_opens(file, about):
    save(file, {}, about)
    assert load(file) == ({}, about)
    with safe_open(file, "numpy") as theirs:
        assert list(theirs.keys()) == []
        assert list(theirs.metadata()) == ["edgefl"]


def test_without_arrays_a_change_is_noticed_too():
    data = bytearray(sealed({}, {"round": 3}))
    data[data.index(b"round")] ^= 1
    with pytest.raises(StoreError, match="damaged"):
        opened(bytes(data), "here")
