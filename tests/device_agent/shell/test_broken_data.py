"""Broken data are a state of a device: it says what is wrong, looks again, and trains when they are good."""

import json
import logging
import os
from pathlib import Path
from threading import Event
from threading import enumerate as enumerate_threads
from typing import Any

import pytest
from test_conditions import Overhears
from test_virtual_agent import switched_on
from tiny import clouds

from device_agent.shell.data_watch import CALM, LONGEST, DataChecked, DataWatch
from device_agent.shell.own_samples import samples_of
from device_agent.shell.presence import UNREADABLE
from device_agent.shell.samples import FIRST, Samples
from device_agent.shell.setup import Limits
from edgefl.base.errors import ConfigError
from edgefl.job.config.agent_file import LocalData
from edgefl.job.config.allowance import Allowance
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


def test_the_old_content_put_back_is_good_for_the_next_task(tmp_path: Path) -> None:
    path = tmp_path / "air.csv"
    write(path, GOOD, 1)
    samples = samples_of(LocalData(source=f"csv:{path}"))
    first = samples.current(as_is)
    for look in (samples.look, lambda: samples.current(as_is)):
        write(path, GOOD + "2.5\n", 2)
        look()
        assert samples.trouble
        write(path, GOOD, 3)
        assert samples.current(as_is) is first
        assert samples.trouble == ""
        write(path, GOOD + "2.5\n", 4)
        look()
        assert samples.trouble
        write(path, GOOD, 1)  # a copy that was put aside
        samples.look()
        assert samples.trouble == ""


def test_other_columns_are_said_of_a_file_that_can_be_read_again_and_a_task_may_want_them(tmp_path: Path) -> None:
    path = tmp_path / "air.csv"
    write(path, GOOD, 1)
    samples = samples_of(LocalData(source=f"csv:{path}"))
    write(path, GOOD + "2.5\n", 2)
    samples.look()
    write(path, "1,2,0\n2,3,1\n" * 10, 3)
    samples.look()
    assert samples.trouble == "the newest samples have the shape [2], those in use [1]"
    assert samples.current(as_is).shape == (2,)
    assert samples.trouble == ""


def test_good_data_are_read_once_between_two_tasks_and_taken_by_the_next() -> None:
    reads, versions = list[int](), [1]

    def read() -> tuple[Dataset, None]:
        reads.append(versions[-1])
        return clouds(12 * versions[-1]), None

    samples = Samples.opened(read, lambda: versions[-1])
    samples.look()
    assert reads == [1]
    versions.append(2)
    samples.look()
    samples.look()
    assert (reads, len(samples.data), samples.changed()) == ([1, 2], 12, True)
    assert len(samples.current(as_is)) == 24
    assert not samples.changed()


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


def test_data_that_do_not_come_hold_up_no_agent_and_are_taken_when_they_are_there() -> None:
    mounted = Event()

    def read() -> tuple[Dataset, None]:
        mounted.wait()
        return clouds(), None

    samples = Samples.opened(read, lambda: 1, patience=0.01)
    assert samples.missing == "reading them has not ended after 0.01 s"
    samples.look()
    assert samples.missing, "it is not read a second time meanwhile"
    mounted.set()
    for thread in enumerate_threads():
        if thread.name == FIRST:
            thread.join()
    assert (len(samples.data), samples.trouble) == (12, "")


@pytest.mark.parametrize("source", ["digitz", "csv:", ":read"])
def test_a_source_that_does_not_exist_is_a_mistake_in_the_agent_file(source: str) -> None:
    with pytest.raises(ConfigError):
        samples_of(LocalData(source=source))


# ---- the agent -------------------------------------------------------------------------------------------------------


class Logger:
    """Data of a device that break and are mended, and a fleet of this one device."""

    def __init__(self, trouble: str = "", **more: Any) -> None:
        self.world, self.trouble = World(), trouble
        broker = VirtualBroker(self.world)
        self.asks = Overhears(self.world, broker)
        self.version = 1
        process = self.world.process("pi")
        self.samples = Samples.opened(self.read, lambda: self.version, wall=lambda: 1000.0)
        self.agent = switched_on(process, broker, MemoryDisk(), data=self.samples, **more)

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


HIDDEN = Limits(allowance=Allowance(epsilon=8.0))


def test_a_device_with_an_allowance_says_in_one_text_that_it_has_no_usable_data() -> None:
    device = Logger("line 32: not a number", limits=HIDDEN)
    device.world.run(until=lambda: bool(device.asks.presences))
    assert device.said() == [(False, f"no usable data: {UNREADABLE}", UNREADABLE, None)]
    device.change("")
    assert device.world.run(until=lambda: len(device.asks.presences) == 2, limit=device.world.now + 2 * LONGEST)
    device.change("row 7: infinity")
    with pytest.raises(ConfigError):
        device.samples.current(refuses)
    device.agent.attendance.announce()
    device.world.run(until=lambda: len(device.asks.presences) == 3)
    assert device.said()[-1] == (True, "", UNREADABLE, 1000.0)


def refuses(data: Dataset) -> Dataset:
    raise ConfigError("its labels go up to 7", told="its labels go beyond the 2 classes")


def test_a_device_with_an_allowance_never_says_that_its_data_do_not_fit_a_task() -> None:
    device = Logger(limits=HIDDEN)
    device.world.run(until=lambda: bool(device.asks.presences))
    device.change("")
    with pytest.raises(ConfigError):
        device.samples.current(refuses)
    assert device.samples.trouble, "which its own log says"
    assert not device.agent.attendance.outdated()
    device.agent.attendance.announce()
    device.world.run(until=lambda: len(device.asks.presences) == 2)
    assert device.said()[-1] == (True, "", "", None)


def test_a_device_that_is_asked_for_nothing_notices_that_its_data_have_broken() -> None:
    device = Logger()
    device.world.run(until=lambda: bool(device.agent.session.committed), limit=100.0)
    device.world.run(limit=20 * CALM)
    assert len(device.asks.presences) == 1
    device.change("line 32: not a number")
    assert device.world.run(until=lambda: len(device.asks.presences) == 2, limit=device.world.now + 2 * CALM)
    assert "line 32: not a number" in device.said()[-1][2]


def test_what_nothing_tells_of_without_reading_is_not_looked_at_while_it_is_good() -> None:
    device = Logger()
    device.samples = Samples.opened(device.read)
    watch = DataWatch("pi", device.samples, device.agent.data_watch.background, device.agent.clock)
    assert watch.deadline(0.0) is None


def test_a_look_that_takes_long_is_taken_less_often() -> None:
    device = Logger()
    device.agent.data_watch.looked(DataChecked(30.0))
    assert device.agent.data_watch.deadline(0.0) == 600.0
