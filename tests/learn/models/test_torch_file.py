"""State dicts are read without running the program that a pickle is."""

import io
import os
import pickle
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import pytest

from edgefl.base.errors import ConfigError
from edgefl.learn.models import torch_file

torch = pytest.importorskip("torch", reason="writes the files with PyTorch")


def saved(path: Path, value: Any, **how: Any) -> Path:
    torch.save(value, path, **how)
    return path


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv1d(3, 4, 3)
        self.norm = torch.nn.BatchNorm1d(4)
        self.last = torch.nn.Linear(4, 2)
        self.tied = self.last


@pytest.mark.parametrize("how", [{}, {"pickle_protocol": 4}], ids=["protocol 2", "protocol 4"])
def test_a_state_dict_is_what_torch_says_it_is(how: dict[str, Any], tmp_path: Path):
    module = Net()
    tensors = torch_file.read(saved(tmp_path / "net.pt", module.state_dict(), **how))
    expected = module.state_dict()
    assert list(tensors) == list(expected)
    for name, tensor in expected.items():
        assert tensors[name].dtype == tensor.numpy().dtype
        np.testing.assert_array_equal(tensors[name], tensor.numpy())


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"])
def test_every_type_is_read(dtype: str, tmp_path: Path):
    tensor = torch.arange(6).reshape(2, 3).to(getattr(torch, dtype))
    (got,) = torch_file.read(saved(tmp_path / "x.pt", {"x": tensor})).values()
    np.testing.assert_array_equal(got, tensor.numpy())
    assert got.dtype == tensor.numpy().dtype


def test_bfloat16_becomes_float32(tmp_path: Path):
    tensor = torch.tensor([1.5, -3.0, 1e20]).to(torch.bfloat16)
    (got,) = torch_file.read(saved(tmp_path / "x.pt", {"x": tensor})).values()
    np.testing.assert_array_equal(got, tensor.float().numpy())


def test_views_parameters_and_tensors_that_share_numbers_are_read(tmp_path: Path):
    whole = torch.arange(12.0)
    value = {
        "turned": whole.reshape(3, 4).t(),
        "part": whole[3:7],
        "one": torch.tensor(2.5),
        "none": torch.zeros(0, 3),
        "weight": torch.nn.Parameter(whole[:2].clone()),
    }
    tensors = torch_file.read(saved(tmp_path / "x.pt", value))
    for name, tensor in value.items():
        np.testing.assert_array_equal(tensors[name], tensor.detach().numpy())


class Harmful:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize(
    "wrap", [lambda harm: harm, lambda harm: {"x": harm}, lambda harm: {"x": torch.zeros(2), "y": [harm]}]
)
def test_what_would_run_code_is_refused_and_runs_none(wrap: Callable[[Any], Any], tmp_path: Path):
    trap = tmp_path / "was run"
    path = saved(tmp_path / "x.pt", wrap(Harmful(trap)))
    with pytest.raises(ConfigError, match=r"it would call posix\.mkdir, and only tensors are read"):
        torch_file.read(path)
    assert not trap.exists()
    torch.load(path, weights_only=False)
    assert trap.exists(), "the file was harmless: this test shows nothing"


def zipped(path: Path, program: bytes, compression: int = 0, **parts: bytes) -> Path:
    with ZipFile(path, "w", compression) as archive:
        archive.writestr("x/data.pkl", program)
        for name, data in parts.items():
            archive.writestr(f"x/data/{name.removeprefix('_')}", data)
    return path


def tensor_of(shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0, count: int = 4) -> bytes:
    """The program of one tensor with these claims."""

    class Storage:
        pass

    class Rebuilt:
        def __reduce__(self) -> tuple[Any, ...]:
            return torch._utils._rebuild_tensor_v2, (Storage(), offset, shape, strides, False, {})

    class Pickler(pickle._Pickler):  # type: ignore[name-defined]
        def persistent_id(self, value: Any) -> Any:
            return ("storage", torch.FloatStorage, "0", "cpu", count) if isinstance(value, Storage) else None

    out = io.BytesIO()
    Pickler(out, 2).dump({"x": Rebuilt()})
    return out.getvalue()


FOUR = np.arange(4, dtype="<f4").tobytes()


def test_a_claim_that_holds_is_believed(tmp_path: Path):
    (got,) = torch_file.read(zipped(tmp_path / "x.pt", tensor_of((2, 2), (2, 1)), _0=FOUR)).values()
    np.testing.assert_array_equal(got, [[0, 1], [2, 3]])


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (tensor_of((5,), (1,)), "larger than its numbers"),
        (tensor_of((2,), (4,)), "larger than its numbers"),
        (tensor_of((2,), (1,), offset=3), "larger than its numbers"),
        (tensor_of((10**6, 10**6), (0, 0)), "larger than its numbers"),
        (tensor_of((2,), (-1,), offset=1), "no proper shape"),
        (tensor_of((2, 2), (1,)), "no proper shape"),
        (tensor_of((2,), (1,), count=10**9), "damaged"),
        (b"\x80\x02]q\x00h\x00h\x00a.", "does not hold tensors by name"),
        (b"\x80\x02}q\x00(X\x01\x00\x00\x00aK\x01u.", "'a' in it is no tensor"),
        (b"\x80\x02(i__main__\nx\n.", "more than tensors"),
        (b"\x80\x02.", "damaged"),
        (b"\x80\x02}", "damaged"),
        (b"cbuiltins\neval\n(X\x01\x00\x00\x001tR.", "would call builtins.eval"),
    ],
)
def test_what_is_no_state_dict_says_so_in_one_line(program: bytes, words: str, tmp_path: Path):
    with pytest.raises(ConfigError, match=words) as refused:
        torch_file.read(zipped(tmp_path / "x.pt", program, _0=FOUR))
    assert "\n" not in str(refused.value)


def test_compressed_archives_other_files_and_whole_modules_are_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="compressed"):
        torch_file.read(zipped(tmp_path / "bomb.pt", b"\x80\x02}.", ZIP_DEFLATED))
    (tmp_path / "text.pt").write_text("no zip")
    with pytest.raises(ConfigError, match="no zip archive"):
        torch_file.read(tmp_path / "text.pt")
    with pytest.raises(ConfigError, match="No such file"):
        torch_file.read(tmp_path / "nothing.pt")
    with pytest.raises(ConfigError, match="perhaps a whole module"):
        torch_file.read(saved(tmp_path / "module.pt", torch.nn.Linear(2, 2)))
    with pytest.raises(ConfigError, match="'epoch' in it is no tensor"):
        torch_file.read(saved(tmp_path / "both.pt", {"epoch": 3, "state_dict": torch.nn.Linear(2, 2).state_dict()}))


@pytest.mark.parametrize("seed", range(200))
def test_a_damaged_file_is_refused_or_read_and_nothing_else(seed: int, tmp_path: Path):
    path = saved(tmp_path / "x.pt", torch.nn.Linear(3, 2).state_dict())
    with ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    rng = np.random.default_rng(seed)
    name = next(name for name in parts if name.endswith("data.pkl"))
    program = bytearray(parts[name])
    for _ in range(rng.integers(1, 4)):
        program[rng.integers(len(program))] = rng.integers(256)
    parts[name] = bytes(program)
    with ZipFile(path, "w") as archive:
        for part, data in parts.items():
            archive.writestr(part, data)
    with suppress(ConfigError):
        torch_file.read(path)
