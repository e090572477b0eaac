"""Objects are the same if they give the same result: whatever counts changes the fingerprint, and nothing else does."""

import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from edgefl.job.run.object_fingerprint import fingerprint
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.models.user_networks import copies

HELPED = """
{comment}
def helper(x): return x * {factor}

class Net:
    {note}
    size: int = {size}
    def __init__(self, words=frozenset({{"b", "a", "c"}})): self.words = set(words)
    def forward(self, x): return [helper(one) for one in x]
"""


def program(factor: int = 2, size: int = 3, comment: str = "", note: str = "") -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(HELPED.format(factor=factor, size=size, comment=comment, note=note), names)  # as a cell of a notebook
    return names


@given(arrays.arrays(np.float32, (4, 3), elements=st.floats(-2, 2, width=32)), st.integers(0, 11))
def test_one_number_of_the_data_counts(x: Any, place: int):
    y, other = np.zeros(4, np.int64), x.copy()
    other.reshape(-1)[place] += 1
    assert fingerprint(lambda: Dataset(x, y, 2)) == fingerprint(lambda: Dataset(x, y, 2))
    first, second = (Dataset(one, y, 2) for one in (x, other))
    assert fingerprint(first) == fingerprint(Dataset(x.copy(), y.copy(), 2))
    assert fingerprint(first) != fingerprint(second)


def test_what_a_class_calls_counts_and_where_it_stands_does_not():
    one = program()["Net"]
    assert fingerprint(one) == fingerprint(program(comment="# told apart\n\n", note='"""In words."""')["Net"])
    assert fingerprint(one) != fingerprint(program(factor=3)["Net"])
    assert fingerprint(one) != fingerprint(program(size=4)["Net"])
    assert fingerprint(one()) == fingerprint(program()["Net"]())
    assert fingerprint(one()) != fingerprint(program()["Net"](("a", "b")))


def test_weights_structure_and_shared_tensors_count():
    torch = pytest.importorskip("torch")

    def network(seed: int = 0, *more: Any, tied: bool = False) -> Any:
        torch.manual_seed(seed)
        first, second = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
        second.load_state_dict(first.state_dict())
        return copies(torch.nn.Sequential(first, *more, first if tied else second))

    each = [network(), network(1), network(0, torch.nn.ReLU()), network(0, torch.nn.Tanh()), network(tied=True)]
    assert len({fingerprint(one) for one in each}) == len(each)
    assert fingerprint(network()) == fingerprint(each[0])


@dataclass(frozen=True)
class Own:
    rate: float = 0.1


def test_closures_partials_and_objects_count_by_what_they_hold():
    def scaled(by: float) -> Any:
        return lambda x: x * by

    each: list[Any] = [scaled(1.0), scaled(2.0), partial(scaled, 1.0), partial(scaled, 2.0), Own(), Own(0.2), Own]
    assert len({fingerprint(one) for one in each}) == len(each)
    assert fingerprint(scaled(1.0)) == fingerprint(each[0])
    circle: list[Any] = [1]
    circle.append(circle)
    assert fingerprint(circle) == fingerprint(circle)


def test_another_process_finds_the_same():
    code = f"""
import sys
sys.path.insert(0, {str(__file__).rpartition("/")[0]!r})
from test_object_fingerprint import program
from edgefl.job.run.object_fingerprint import fingerprint
print(fingerprint(program()["Net"]()))
"""
    hashes = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(hashes) == 1
