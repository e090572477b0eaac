"""A small file that stands for very much is refused in one line, before it takes memory or time.

Each is read by a process that has little memory (tests/bombs.py): one that goes off fails its test, and nothing else.
"""

import gzip
import struct
from collections.abc import Callable
from pathlib import Path

import bombs
import numpy as np
import pytest

READ = """
import sys
from pathlib import Path
from edgefl.learn.data.catalog import load
from edgefl.learn.data.reading import Reading
from edgefl.base.errors import ConfigError
try:
    load(sys.argv[1], Path(sys.argv[2]), Reading.model_validate_json(sys.argv[3]))
except ConfigError as error:
    print(error)
"""
LARGE = "takes more than 200 MB of memory; give fewer samples, or raise data.most_mb"
FROM_A_VIEW = '{"most_mb": 200, "query": "SELECT * FROM v"}'


def said(source: str, root: Path, settings: str = '{"most_mb": 200}') -> str:
    """The one line that is said of a source."""
    done = bombs.run("-c", READ, source, str(root), settings)
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = done.stdout.splitlines()
    return line


@pytest.mark.parametrize(
    ("kind", "make", "words"),
    [
        ("npz", bombs.npz, LARGE),
        ("npz", bombs.npz_that_claims, LARGE),
        ("npz", bombs.npz_with_a_long_header, "cannot be read as data"),
        ("npz", bombs.npz_nested, "cannot be read as data (the header of 'x.npy' cannot be read)"),
        ("npz", bombs.npy_sparse, "not an .npz archive"),
        ("npz", bombs.npy_before_an_archive, "not an .npz archive"),
        ("npz", bombs.npz_of_nothing, "'classes.npy' is an array of <U0"),
        ("npz", bombs.npz_of_names, "'classes' names 10000000 classes; 65536 are the most"),
        ("npz", bombs.npz_of_less_than_nothing, "'a.npy' is an array of uint8 (-2000000000,)"),
        ("npz", bombs.npz_of_bits, LARGE),
        ("npz", bombs.npz_of_two_names, "lacks x, y; it has nothing"),
        ("sqlite", bombs.view_without_end, "has the views v; say what to read: data.query"),
        ("sqlite", bombs.view_of_large_cells, "has the views v; say what to read: data.query"),
        ("sqlite", bombs.large_generated_column, "its table computes the columns label; say what to read: data.query"),
        ("sqlite", bombs.slow_generated_column, "its table computes the columns b, label; say what to read"),
        ("csv", bombs.csv_without_lines, "line 2: a line is longer than 1048576 characters"),
        ("csv", bombs.csv_of_one_row, "a row is longer than 1048576 characters"),
        ("csv", bombs.csv_of_texts, LARGE),
        ("images", bombs.large_image, "400000000 pixels"),
        ("images", bombs.many_images, LARGE),
    ],
)
def test_a_bomb_is_refused_in_one_line(kind: str, make: Callable[[Path], None], words: str, tmp_path: Path) -> None:
    if kind == "images":
        pytest.importorskip("PIL")
    make(tmp_path / "a")
    line = said(f"{kind}:{tmp_path / 'a'}", tmp_path)
    assert words in line
    assert "a'" in line or f"{tmp_path / 'a'}: " in line, "the line names the file"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (bombs.view_without_end, "the query takes too long: more than 300 million steps"),
        (bombs.view_of_many_rows, LARGE),
        pytest.param(bombs.view_of_large_cells, "string or blob too big", marks=bombs.NEEDS_3_11),
    ],
)
def test_a_query_of_a_view_has_an_end_and_small_cells(make: Callable[[Path], None], words: str, tmp_path: Path) -> None:
    make(tmp_path / "a")
    assert words in said(f"sqlite:{tmp_path / 'a'}", tmp_path, FROM_A_VIEW)


@bombs.NEEDS_3_11
def test_a_column_that_a_table_computes_has_small_cells(tmp_path: Path) -> None:
    bombs.large_generated_column(tmp_path / "a")
    query = '{"most_mb": 200, "query": "SELECT * FROM t"}'
    assert "string or blob too big" in said(f"sqlite:{tmp_path / 'a'}", tmp_path, query)


def test_a_table_is_read_whatever_views_stand_beside_it(tmp_path: Path) -> None:
    rows = [f"INSERT INTO t VALUES ({n}.5, {n % 2})" for n in range(10)]
    bombs.sqlite(tmp_path / "a", "CREATE TABLE t (a, label)", *rows)
    bombs.view_without_end(tmp_path / "a")
    done = bombs.run("-c", READ, f"sqlite:{tmp_path / 'a'}", str(tmp_path), "{}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_page_of_parquet_stands_for_no_more_than_the_limit(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    bombs.parquet(tmp_path / "a")
    assert LARGE in said(f"parquet:{tmp_path / 'a'}", tmp_path)


def test_windows_count_as_what_they_become(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("".join(f"{n}.5,{n % 2}\n" for n in range(40_000)))
    assert LARGE in said(f"csv:{tmp_path / 'a.csv'}", tmp_path, '{"most_mb": 200, "window": 5000, "stride": 1}')


# ---- the sets of the data root ---------------------------------------------------------------------------------------


def mnist(root: Path) -> None:
    images = root / "mnist" / "MNIST" / "raw" / "train-images-idx3-ubyte.gz"
    bombs.zeros_in_gzip(images, struct.pack(">4B3I", 0, 0, 8, 3, 1_500_000, 28, 28))


def sent140(root: Path) -> None:
    bombs.zeros_in_gzip(root / "sent140" / "leaf_users.tsv.gz", b"user\tlabel\ttext\n")


def sent140_rows(root: Path) -> None:
    (root / "sent140").mkdir()
    with gzip.open(root / "sent140" / "leaf_users.tsv.gz", "wb", compresslevel=1) as file:
        file.write(b"user\tlabel\ttext\n" + b"1\t1\thello\n" * 10_000_000)


def uci_har(root: Path) -> None:
    """Two million windows, all of which are the same one."""
    (root / "uci_har").mkdir()
    held = {"stream": np.zeros((128, 9), np.float32), "start": np.zeros(2_000_000, np.int64)}
    np.savez_compressed(root / "uci_har" / "uci_har.npz", **held)


def watch_rehab(root: Path) -> None:
    """Recordings that end far behind their data, as far as they go, again and again."""
    (root / "watch_rehab").mkdir()
    held = {"x": np.zeros((200_000, 6), np.float32), "offset": np.tile([0, 2**62], 1000)}
    np.savez_compressed(root / "watch_rehab" / "watch.npz", **held)


def cifar100(root: Path) -> None:
    """Labels of a hundred million tiles."""
    (root / "cifar100_subset").mkdir()
    held = dict.fromkeys(("train", "test"), np.zeros(10_000_000, np.uint8))
    np.savez_compressed(root / "cifar100_subset" / "labels.npz", **held)


def mnist_m(root: Path) -> None:
    """A sheet that says it has 65,500 times 65,500 pixels."""
    from PIL import Image

    (root / "mnist_m").mkdir()
    np.savez(root / "mnist_m" / "labels.npz", y=np.zeros(10, np.uint8))
    sheet = root / "mnist_m" / "mnist_m_test.jpg"
    Image.new("RGB", (32, 32)).save(sheet)
    raw = bytearray(sheet.read_bytes())
    at = raw.index(b"\xff\xc0") + 5
    raw[at : at + 4] = struct.pack(">HH", 65_500, 65_500)
    sheet.write_bytes(raw)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (mnist, LARGE),
        (sent140, "a line is longer than 1048576 characters"),
        (sent140_rows, LARGE),
        (uci_har, LARGE),
        (watch_rehab, LARGE),
        (cifar100, LARGE),
        (mnist_m, "4290250000 pixels"),
    ],
)
def test_a_set_of_the_data_root_may_be_a_bomb_too(make: Callable[[Path], None], words: str, tmp_path: Path) -> None:
    if make in {cifar100, mnist_m}:
        pytest.importorskip("PIL")
    make(tmp_path)
    assert words in said(make.__name__.removesuffix("_rows"), tmp_path)
