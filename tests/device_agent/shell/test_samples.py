"""What is added to a device's data is used by the next task; what cannot be used changes nothing."""

import logging
import os
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from device_agent.shell.own_samples import samples_of
from device_agent.shell.samples import Samples
from edgefl.base.errors import ConfigError
from edgefl.job.config.agent_file import LocalData
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.data.partition import Partition


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
    assert (held.misfit, held.misfits) == (True, 1), "which is another thing than data that cannot be read"
    write(path, 10, "1.5,0\n2.5\n")
    os.utime(path, ns=(78, 78))
    assert held.current(two_features) is first
    assert (held.misfit, held.misfits) == (False, 1)


def test_data_that_never_fitted_are_the_operator_s_to_correct(path: Path) -> None:
    def never(_: Dataset) -> Dataset:
        raise ConfigError("another shape")

    with pytest.raises(ConfigError, match="another shape"):
        samples_of(LocalData(source=f"csv:{path}")).current(never)


def test_a_function_is_called_again_before_every_task() -> None:
    x = np.arange(6, dtype=np.float32).reshape(6, 1)
    rows = [2, 2, 5]

    def read() -> tuple[Dataset, None]:
        return Dataset(x[: rows[0]], np.zeros(rows.pop(0), np.int64), 1), None

    held = Samples(*read(), read)
    first = held.current(as_is)
    assert first is held.data  # the same numbers: nothing is new
    assert len(held.current(as_is)) == 5


def test_the_part_of_a_trial_never_changes(path: Path) -> None:
    held = samples_of(LocalData(source=f"csv:{path}", partition=Partition(kind="iid", devices=2)))
    first = held.current(as_is)
    write(path, 20)
    assert held.current(as_is) is first


def test_an_sqlite_file_that_grows_is_read_again_while_its_writer_has_it_open(tmp_path: Path) -> None:
    writer = sqlite3.connect(tmp_path / "log.db")
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("CREATE TABLE log (x REAL, label TEXT)")
    add = "INSERT INTO log VALUES (?, ?)"
    writer.executemany(add, [(i, "on" if i % 2 else "off") for i in range(10)])
    writer.commit()
    held = samples_of(LocalData(source=f"sqlite:{tmp_path / 'log.db'}"))
    assert len(held.current(as_is)) == 8
    writer.executemany(add, [(i, "on" if i % 2 else "off") for i in range(10)])
    writer.commit()
    assert len(held.current(as_is)) == 16
    writer.close()


def test_a_new_file_beside_the_others_is_read_too(tmp_path: Path) -> None:
    write(tmp_path / "day1.csv", 10)
    held = samples_of(LocalData(source=f"csv:{tmp_path}/day*.csv"))
    assert len(held.current(as_is)) == 16
    write(tmp_path / "day2.csv", 10)
    assert len(held.current(as_is)) == 32


def test_a_new_image_is_used_by_the_next_task(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="needs Pillow (edgefl[images])")

    def draw(name: str) -> None:
        image.new("L", (4, 4), 100).save(tmp_path / name)

    for label in ("a", "b"):
        (tmp_path / label).mkdir()
        for i in range(5):
            draw(f"{label}/{i}.png")
    held = samples_of(LocalData(source=f"images:{tmp_path}"))
    first = held.current(as_is)
    assert (len(first), first.class_names) == (8, ("a", "b"))
    assert held.current(as_is) is first
    for i in range(5, 10):
        draw(f"a/{i}.png")
    assert len(held.current(as_is)) == 12
