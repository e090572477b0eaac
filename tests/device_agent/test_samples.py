"""What is added to a device's data is used by the next task; what cannot be used changes nothing."""

import logging
import os
from pathlib import Path

import numpy as np
import pytest

from device_agent.samples import Samples, samples_of
from edgefl.config.schema import LocalData
from edgefl.data.dataset import Dataset
from edgefl.data.partition import Partition
from edgefl.errors import ConfigError


def as_is(data: Dataset) -> Dataset:
    return data


def write(path: Path, lines: int, line: str = "1.5,0\n2.5,1\n") -> None:
    path.write_text(line * lines)
    os.utime(path, ns=(lines, lines))  # no test depends on the clock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write(tmp_path / "air.csv", 10)
    return tmp_path / "air.csv"


def test_a_file_that_has_changed_is_read_again(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    held = samples_of(LocalData(source=f"csv:{path}"))
    first = held.current(as_is)
    assert held.current(as_is) is first  # not even read: the same object, the same bits
    write(path, 20)
    with caplog.at_level(logging.INFO):
        assert len(held.current(as_is)) == 32
    assert "data read again samples=32 before=16" in caplog.text
    assert len(held.data) == 32


def test_a_file_that_cannot_be_used_any_more_leaves_the_old_data(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    held = samples_of(LocalData(source=f"csv:{path}"))
    first = held.current(as_is)
    for spoilt in ("1.5,0\n2.5\n", ",0\n2.5,1\n"):
        write(path, 30, spoilt)
        os.utime(path, ns=(len(spoilt), 9))
        assert held.current(as_is) is first
    path.unlink()
    assert held.current(as_is) is first
    assert held.current(as_is) is first
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 3
    assert all("new data are not used, the old ones stay samples=16" in warning for warning in warnings)
    write(path, 40)
    assert len(held.current(as_is)) == 64


def test_new_data_that_do_not_fit_the_task_are_not_used(path: Path) -> None:
    def two_features(data: Dataset) -> Dataset:
        if data.shape != (1,):
            raise ConfigError("another shape")
        return data

    held = samples_of(LocalData(source=f"csv:{path}"))
    first = held.current(two_features)
    write(path, 10, "1,2,0\n1,2,1\n")
    os.utime(path, ns=(77, 77))
    assert held.current(two_features) is first


def test_data_that_never_fitted_are_the_operator_s_to_correct(path: Path) -> None:
    def never(_: Dataset) -> Dataset:
        raise ConfigError("another shape")

    with pytest.raises(ConfigError, match="another shape"):
        samples_of(LocalData(source=f"csv:{path}")).current(never)


def test_a_function_is_called_again_before_every_task() -> None:
    x = np.arange(6, dtype=np.float32).reshape(6, 1)
    rows = [2, 2, 5]

    def read() -> Dataset:
        return Dataset(x[: rows[0]], np.zeros(rows.pop(0), np.int64), 1)

    held = Samples(read(), read)
    first = held.current(as_is)
    assert first is held.data  # the same numbers: nothing is new
    assert len(held.current(as_is)) == 5


def test_the_part_of_a_trial_never_changes(path: Path) -> None:
    held = samples_of(LocalData(source=f"csv:{path}", partition=Partition(kind="iid", devices=2)))
    first = held.current(as_is)
    write(path, 20)
    assert held.current(as_is) is first
