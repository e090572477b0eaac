"""Broken data are a state of a device: it says what is wrong, looks again, and trains when they are good."""

import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest
from test_conditions import Overhears
from test_virtual_agent import switched_on
from tiny import clouds

from device_agent.shell.data_watch import LONGEST
from device_agent.shell.own_samples import samples_of
from device_agent.shell.samples import Samples
from edgefl.base.errors import ConfigError
from edgefl.job.config.agent_file import LocalData
from edgefl.learn.data.dataset import Dataset
from edgefl.sim.network import VirtualBroker
from edgefl.sim.world import World
from edgefl.system.memory_disk import MemoryDisk

GOOD = "1.5,0\n2.5,1\n" * 10


def as_is(data: Dataset) -> Dataset:
    return data


def write(path: Path, text: str, version: int) -> None:
    path.write_text(text)
    os.utime(path, ns=(version, version))  # no test depends on the clock


# ---- the samples -----------------------------------------------------------------------------------------------------


def test_a_file_that_is_not_there_is_a_state_until_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "air.csv"
    samples = samples_of(LocalData(source=f"csv:{path}"))
    assert samples.missing
    with pytest.raises(ConfigError, match="no usable data"):
        samples.current(as_is)
    samples.look()
    assert len([one for one in caplog.messages if one.startswith("no usable data")]) == 1, "the same is logged once"
    write(path, GOOD, 1)
    samples.look()
    assert (samples.missing, samples.trouble, len(samples.data)) == ("", "", 16)
    assert len(samples.current(as_is)) == 16


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("empty.csv", b"a,b,label\n", ["empty.csv", "is empty"]),
        ("rubbish.npz", b"PK\x03\x04 rubbish", ["rubbish.npz", "cannot be read as data"]),
        ("hole.csv", b"1,nan,0\n1,2,1\n1,2,1\n", ["hole.csv', line 1, column '2'", "the cell is empty"]),
        ("endless.csv", b"1,inf,0\n1,2,1\n1,2,1\n", ["endless.csv", "NaN or infinity in sample 0"]),
        ("word.csv", b"1,2,0\n" * 31 + b"1,warm,1\n", ["word.csv', line 32, column 2", "is not a number"]),
    ],
)
def test_the_log_of_the_device_says_what_is_wrong_with_its_data(
    name: str, content: bytes, words: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / name).write_bytes(content)
    assert samples_of(LocalData(source=f"{name[-3:]}:{tmp_path / name}")).missing
    (line,) = [one for one in caplog.messages if one.startswith("no usable data")]
    assert all(word in line for word in words)


def test_a_cell_with_a_text_is_a_state(tmp_path: Path) -> None:
    path = tmp_path / "air.csv"
    write(path, GOOD + "secret,1\n", 1)
    samples = samples_of(LocalData(source=f"csv:{path}"))
    assert samples.missing
    write(path, GOOD, 2)
    samples.look()
    assert len(samples.data) == 16


def test_data_that_break_later_leave_the_old_ones_and_say_so_until_they_are_good(tmp_path: Path) -> None:
    path = tmp_path / "air.csv"
    write(path, GOOD, 1)
    samples = samples_of(LocalData(source=f"csv:{path}"))
    first = samples.current(as_is)
    read_at = samples.read_at
    write(path, GOOD + "2.5\n", 2)
    assert samples.current(as_is) is first
    assert samples.trouble
    assert (samples.missing, samples.read_at) == ("", read_at)
    samples.look()
    assert samples.trouble, "nothing has changed since"
    write(path, GOOD * 2, 3)
    samples.look()
    assert samples.trouble == ""
    assert len(samples.current(as_is)) == 32
    assert samples.read_at > read_at


def test_a_function_that_raises_anything_is_a_state_too() -> None:
    answers: list[Any] = [RuntimeError("row 7 is secret"), (clouds(), None)]

    def read() -> Any:
        if isinstance(answer := answers.pop(0), Exception):
            raise answer
        return answer

    samples = Samples.opened(read)
    assert samples.missing
    samples.look()
    assert len(samples.data) == 12


@pytest.mark.parametrize("source", ["digitz", "csv:", ":read"])
def test_a_source_that_does_not_exist_is_a_mistake_in_the_agent_file(source: str) -> None:
    with pytest.raises(ConfigError):
        samples_of(LocalData(source=source))


# ---- the agent -------------------------------------------------------------------------------------------------------


class Logger:
    """Data of a device that break and are mended, and a fleet of this one device."""

    def __init__(self, trouble: str = "") -> None:
        self.world, self.trouble = World(), trouble
        broker = VirtualBroker(self.world)
        self.asks = Overhears(self.world, broker)
        self.version = 1
        process = self.world.process("pi")
        self.samples = Samples.opened(self.read, lambda: self.version, wall=lambda: 1000.0)
        self.agent = switched_on(process, broker, MemoryDisk(), data=self.samples)

    def read(self) -> tuple[Dataset, None]:
        if self.trouble:
            raise ConfigError(f"{self.trouble}: 'secret'", told=self.trouble)
        return clouds(12 * self.version), None

    def change(self, trouble: str) -> None:
        self.trouble, self.version = trouble, self.version + 1

    def said(self) -> list[tuple[bool, str, str, float | None]]:
        each = self.asks.presences
        return [(one["online"], one["resting"], one["trouble"], one["samples_from"]) for one in each]


def test_an_agent_without_usable_data_connects_says_why_and_trains_when_they_are_good() -> None:
    device = Logger("line 32: not a number")
    device.world.run(until=lambda: bool(device.asks.presences))
    ((online, resting, trouble, samples_from),) = device.said()
    assert (online, samples_from) == (False, None)
    assert resting.startswith("no usable data: ")
    assert "line 32: not a number" in resting
    assert "line 32: not a number" in trouble
    device.world.run(limit=20 * LONGEST)
    assert device.agent.exit is None
    assert len(device.asks.presences) == 1, "what has not changed is not said again"
    assert not device.asks.answers
    device.change("")
    assert device.world.run(until=lambda: bool(device.agent.session.committed), limit=device.world.now + 2 * LONGEST)
    assert device.said()[-1] == (True, "", "", None)
    assert "secret" not in json.dumps(device.asks.presences)


def test_data_that_break_while_a_device_trains_are_announced_until_they_are_mended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    device = Logger()
    device.world.run(until=lambda: bool(device.asks.presences))
    device.change("line 32: not a number")
    with caplog.at_level(logging.INFO):
        assert device.world.run(until=lambda: len(device.asks.presences) == 2, limit=100.0)
    online, resting, trouble, samples_from = device.said()[-1]
    assert (online, resting, samples_from) == (True, "", 1000.0)
    assert "line 32: not a number" in trouble
    device.change("")
    assert device.world.run(until=lambda: len(device.asks.presences) == 3, limit=device.world.now + 2 * LONGEST)
    assert device.said()[-1] == (True, "", "", None)
    assert device.asks.answers, "it trained on what it had"


def test_a_device_whose_data_are_good_never_looks_at_them_by_itself() -> None:
    device = Logger()
    device.world.run(limit=20 * LONGEST)
    assert device.agent.data_watch.deadline(device.world.now) is None
    assert len(device.asks.presences) == 1
