"""Small files that stand for very much, and a process with little memory to read them in."""

import gzip
import os
import resource
import sqlite3
import struct
import subprocess
import sys
import zipfile
import zlib
from functools import cache
from pathlib import Path

import pytest

NEEDS_3_11 = pytest.mark.skipif(sys.version_info < (3, 11), reason="Python cannot tell SQLite how long a cell may be")
ROOM = 800 << 20  # bytes beside what a program of ours begins with: a bomb that goes off ends it, and not the machine
# Each further thread of a library would take 40 MB before anything is read, and a machine may have a hundred.
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
LOADED = """
import contextlib, pathlib
import edgefl.learn.data.catalog
with contextlib.suppress(ImportError):
    import torch
print(next(line.split()[1] for line in pathlib.Path("/proc/self/status").open() if line.startswith("VmData:")))
"""


@cache
def most() -> int:
    """Return the bytes that a program may have: those that it has here with numpy and torch loaded, and `ROOM`."""
    environment = {**os.environ, **ONE_THREAD}
    loaded = subprocess.run(
        [sys.executable, "-c", LOADED], check=True, capture_output=True, text=True, env=environment
    ).stdout
    return (int(loaded) << 10) + ROOM


def run(*command: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A program of ours, by its module or with -c, where memory is little."""
    memory = most()

    def limited() -> None:
        """Take little memory and no core, before the program begins."""
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    return subprocess.run(
        [sys.executable, *command],
        check=False, capture_output=True, text=True, errors="replace", timeout=240, cwd=folder, preexec_fn=limited,
        env={**os.environ, **ONE_THREAD},
    )  # fmt: skip


def header(shape: tuple[int, ...], dtype: str = "<f4") -> bytes:
    """The beginning of an array in numpy's format."""
    text = repr({"descr": dtype, "fortran_order": False, "shape": shape}).encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def write_zeros(path: Path, start: bytes, zeros: int, name: str = "x.npy") -> None:
    """An archive with one compressed member: this start, and so many zeros behind it."""
    archive = zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED, compresslevel=1)
    with archive, archive.open(name, "w", force_zip64=True) as member:
        member.write(start)
        block = bytes(1 << 24)
        for begin in range(0, zeros, len(block)):
            member.write(block[: zeros - begin])


def npz(path: Path, size: int = 1_200_000_000) -> None:
    """An .npz archive of a few MB whose features take 1.2 GB."""
    rows = size // 4_000
    write_zeros(path, header((rows, 1000)), rows * 4000)
    write_zeros(path, header((rows,), "<i8"), rows * 8, "y.npy")


def npz_that_claims(path: Path) -> None:
    """An archive of which only the header says how much it holds."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", header((1 << 40, 1000)))


def npz_with_a_long_header(path: Path) -> None:
    """An array whose header is 1.2 GB long."""
    write_zeros(path, b"\x93NUMPY\x02\x00" + struct.pack("<I", 1_200_000_000), 1_200_000_000)


def npz_nested(path: Path) -> None:
    """A header that is nested deeper than Python can go."""
    text = b"(" * 9000 + b"\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text)


def npy_sparse(path: Path) -> None:
    """A single array of 100 GB, of which the disk holds nothing."""
    with path.open("wb") as file:
        file.write(header((100_000_000_000 // 4,)))
        file.truncate(100_000_000_000)


def npy_before_an_archive(path: Path) -> None:
    """The same, with an empty archive behind it."""
    npy_sparse(path)
    with zipfile.ZipFile(path, "a"):
        pass


def npz_of_nothing(path: Path, names: int = 1 << 26) -> None:
    """500 bytes that name very many classes, each of which is an empty text."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", header((4, 2)) + bytes(32))
        archive.writestr("y.npy", header((4,), "<i8") + bytes(32))
        archive.writestr("classes.npy", header((names,), "<U0"))


def npz_of_names(path: Path) -> None:
    """Names of classes of one letter each, which become texts of 50 bytes."""
    write_zeros(path, header((10_000_000,), "<U1"), 40_000_000, "classes.npy")
    write_zeros(path, header((4, 2)), 32)
    write_zeros(path, header((4,), "<i8"), 32, "y.npy")


def npz_of_less_than_nothing(path: Path) -> None:
    """Features of 1.2 GB, and beside them an array that claims to take as much less than nothing."""
    write_zeros(path, header((-2_000_000_000,), "|u1"), 0, "a.npy")
    npz(path)


def npz_of_bits(path: Path) -> None:
    """Features of one byte each, that take 480 MB as float32."""
    write_zeros(path, header((120_000, 1000), "|b1"), 120_000_000)
    write_zeros(path, header((120_000,), "<i8"), 960_000, "y.npy")


def npz_of_two_names(path: Path) -> None:
    """An array of 100 GB under a name that is not one of an array."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x", header((1 << 30, 100)))


def sqlite(path: Path, *statements: str) -> None:
    with sqlite3.connect(path) as made:
        for statement in statements:
            made.execute(statement)
    made.close()


ENDLESS = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c)"


def view_without_end(path: Path) -> None:
    """A view that never gives its first row."""
    sqlite(path, f"CREATE VIEW v AS {ENDLESS} SELECT count(*) AS a, 1 AS label FROM c")


def view_of_large_cells(path: Path) -> None:
    """A view of 900 MB cells."""
    sqlite(path, f"CREATE VIEW v AS {ENDLESS} SELECT zeroblob(900000000) AS a, n AS label FROM c LIMIT 50")


def view_of_many_rows(path: Path) -> None:
    """A view that never stops to give rows, each with a text of its own."""
    sqlite(path, f"CREATE VIEW v AS {ENDLESS} SELECT n AS a, printf('%d%.*c', n, 900000, 'x') AS label FROM c")


def large_generated_column(path: Path) -> None:
    """A table of one short row whose second column is computed: 900 MB."""
    sqlite(path, "CREATE TABLE t (a, label AS (zeroblob(900000000)))", "INSERT INTO t VALUES (1)")


def slow_generated_column(path: Path) -> None:
    """A table each cell of which takes seconds, within a single instruction."""
    cell = "instr(zeroblob(900000), zeroblob(450000) || x'01')"
    changed = f"CREATE TABLE t (a, b AS ({cell}), label AS ({cell}))".replace("'", "''")
    schema = "PRAGMA writable_schema = 1", f"UPDATE sqlite_master SET sql = '{changed}'"  # else writing computes too
    sqlite(path, "CREATE TABLE t (a)", *["INSERT INTO t VALUES (1)"] * 20, *schema)


def csv_without_lines(path: Path) -> None:
    """A sparse file of 20 GB in which no line ends."""
    with path.open("wb") as file:
        file.write(b"1,2,0\n1,2,")
        file.truncate(20_000_000_000)


def csv_of_one_row(path: Path) -> None:
    """A quoted row without end: each of its lines is short."""
    path.write_bytes(b"1,2,0\n" + b'"a\n",' * 20_000_000)


def csv_of_texts(path: Path) -> None:
    """Labels that are all different, and as long as they may be."""
    with path.open("w") as file:
        file.writelines(f"1,{n}{'x' * 130_000}\n" for n in range(2000))


def parquet(path: Path) -> None:
    """650 bytes, and a text of 5 MB in each of 5000 rows."""
    import pyarrow
    from pyarrow import parquet as files

    text = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 5000, pyarrow.int32()), ["x" * 5_000_000])
    table = pyarrow.table({"a": [1.0] * 5000, "label": text})
    files.write_table(table, path, compression="zstd", store_schema=False)


def png(path: Path, width: int, height: int) -> None:
    """A picture of zeros."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    path.parent.mkdir(parents=True, exist_ok=True)
    packer = zlib.compressobj(1)
    rows = b"".join(packer.compress(bytes(1 + width // 8)) for _ in range(height)) + packer.flush()
    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b""))


def large_image(folder: Path) -> None:
    png(folder / "a" / "1.png", 20_000, 20_000)


def many_images(folder: Path) -> None:
    """Pictures each of which may be read, and that together take 4 GB."""
    for n in range(30):
        png(folder / "ab"[n % 2] / f"{n}.png", 6_000, 6_000)


def zeros_in_gzip(path: Path, start: bytes, zeros: int = 1_200_000_000) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(start)
        block = bytes(1 << 24)
        for _ in range(zeros // len(block)):
            file.write(block)


def shared_storage(path: Path) -> None:
    """A state dict of 200 tensors that are one and the same 16 MB."""
    import torch

    one = torch.zeros(4_000_000)
    torch.save({f"t{n}": one.view(4_000_000) for n in range(200)}, path)


def overlapping_parts(path: Path) -> None:
    """A state dict of 100 tensors, each with a part of its own, all of which are the same bytes of the file."""
    import torch

    torch.save({f"t{n}": torch.zeros(4_000_000 if n == 0 else 1) for n in range(100)}, path)
    with zipfile.ZipFile(path) as whole:
        program = next(whole.read(name) for name in whole.namelist() if name.endswith("data.pkl"))
    count = (4_000_000).to_bytes(4, "little")
    program = program.replace(b"cpuq\x06K\x01", b"cpuq\x06J" + count)  # the others claim as much as the first
    with zipfile.ZipFile(path, "w") as whole:
        whole.writestr("x/data.pkl", program)
        whole.writestr("x/data/0", bytes(16_000_000))
        first = whole.getinfo("x/data/0")
        for n in range(1, 100):
            other = zipfile.ZipInfo(f"x/data/{n}")
            for key in ("CRC", "compress_size", "file_size", "header_offset"):
                setattr(other, key, getattr(first, key))
            whole.filelist.append(other)
            whole.NameToInfo[other.filename] = other


def pickle_of(path: Path, program: bytes) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x/data.pkl", program)


def nested_key(path: Path) -> None:
    """A dictionary whose key is nested a million times: to hash it takes more of the stack than there is."""
    pickle_of(path, b"\x80\x02})" + b"\x85" * 1_000_000 + b"K\x01s.")


def nested_name(path: Path) -> None:
    """The same as the name of a type of numbers."""
    name = b"X\x05\x00\x00\x00torch)" + b"\x85" * 1_000_000 + b"\x93"
    pickle_of(path, b"\x80\x04}X\x01\x00\x00\x00x(X\x07\x00\x00\x00storage" + name + b"NNNtQs.")


def empty_dictionaries(path: Path) -> None:
    """A program of 60 MB that is 60 million dictionaries."""
    pickle_of(path, b"\x80\x02" + b"}" * 60_000_000 + b".")


def many_dimensions(path: Path) -> None:
    """A tensor of a hundred thousand dimensions, each of which is a number of 600 digits."""
    number = b"\x8a\xff" + b"\x7f" * 255
    shape = b"(" + number + b"q\x01" + b"h\x01" * 100_000 + b"t"
    stored = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x01tQ"
    tensor = b"ctorch._utils\n_rebuild_tensor_v2\n(" + stored + b"K\x00" + shape + shape + b"tR"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x/data.pkl", b"\x80\x02}X\x01\x00\x00\x00x" + tensor + b"s.")
        archive.writestr("x/data/0", bytes(4))


def sparse(path: Path) -> None:
    """A file of 20 GB, of which the disk holds nothing."""
    with path.open("wb") as file:
        file.truncate(20_000_000_000)
