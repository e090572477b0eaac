"""A device says which machine it is; a machine that tells nothing is no error."""

import os

import pytest

from device_agent.shell.board import Board, measured


def machine(folder, text):
    (folder / "proc").mkdir()
    (folder / "proc/meminfo").write_text(text)
    return measured(folder)


def test_a_machine_tells_its_processor_and_its_memory(tmp_path):
    pi = machine(tmp_path, "MemTotal:         927304 kB\nMemFree:           61200 kB\n")
    assert pi == Board(os.uname().machine, 905)


@pytest.mark.parametrize("text", ["", "MemFree: 1 kB\n", "MemTotal: many kB\n", "MemTotal:\n", "MemTotal: 5 MB\n"])
def test_memory_that_it_does_not_tell_is_not_known(tmp_path, text):
    assert machine(tmp_path, text).memory_mb is None


def test_a_machine_without_that_file_tells_its_processor(tmp_path):
    assert measured(tmp_path) == Board(os.uname().machine, None)


def test_this_machine_has_memory():
    assert (measured().memory_mb or 0) > 0
