"""What devices keep between rounds, in memory and in the file behind it."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from edgefl.base.errors import StoreError
from edgefl.base.vector import State
from edgefl.sim.device_states import DeviceStates

LARGE = 1 << 30
STATES = st.dictionaries(
    st.sampled_from(["c_i", "seen", "words"]),
    arrays(st.sampled_from(["<f4", "<i8", "|b1", "<U3"]), array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=5)),
)


def bits(state: State) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    return {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in state.items()}


@given(st.lists(st.tuples(st.sampled_from("abcd"), STATES)), st.sampled_from([0, 100, LARGE]))
def test_every_device_has_what_it_kept_last_wherever_that_is(kept: list[tuple[str, State]], memory: int):
    model: dict[str, State] = {}
    with DeviceStates(memory) as states:
        for device, state in kept:
            states.keep(device, state)
            model[device] = state
            assert {name: bits(states[name]) for name in "abcd"} == {name: bits(model.get(name, {})) for name in "abcd"}


def test_the_file_is_as_large_as_what_is_kept_and_grows_no_further(tmp_path: Path):
    with DeviceStates(0, str(tmp_path)) as states:
        for _ in range(3):
            for device in "abc":
                states.keep(device, {"c_i": np.ones(16, np.float32)})
        assert states.on_disk == 3 * 64
        assert [path.stat().st_size for path in tmp_path.glob("*/states")] == [3 * 64]
    assert list(tmp_path.iterdir()) == []


def test_what_fits_into_memory_needs_no_file(tmp_path: Path):
    with DeviceStates(LARGE, str(tmp_path)) as states:
        states.keep("a", {"c_i": np.ones(16, np.float32)})
        assert (states.on_disk, list(tmp_path.iterdir())) == (0, [])


def test_a_full_disk_says_what_can_be_done(tmp_path: Path):
    with DeviceStates(0, str(tmp_path)) as states:
        states._file = Path("/dev/full").open("r+b")  # noqa: SIM115 - closed by its owner
        with pytest.raises(StoreError, match=r"it is full.*TMPDIR.*compute\.state_mb"):
            states.keep("b", {"c_i": np.ones(16, np.float32)})
