"""Modules and data of the user's are found beside the file that names them, in whatever process needs them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from facts import in_json

from edgefl.base.errors import ConfigError
from edgefl.job.config.agent_file import AgentFile
from edgefl.job.config.reader import load, read_own
from edgefl.job.config.schema import RunFile
from edgefl.job.run.local_data import local_data
from edgefl.lab.comparison.outcomes import PlayedRun
from edgefl.lab.comparison.running import play_all
from edgefl.lab.comparison.variants import variants
from edgefl.learn.data.catalog import load as load_source
from edgefl.sim.drivers import play
from edgefl.system import user_code, user_files

DATA = """
import numpy as np
def read():
    x = np.random.default_rng(0).normal(size=(40, 3))
    return x, (x[:, 0] > 0).astype(int)
def broken():
    raise KeyError("sensor")
"""
MODEL = """
from torch import nn
def net(shape, classes):
    return nn.Linear(shape[0], classes)
"""
RUN = """
[run]
name = "beside"
rounds = 1
[task]
data = "own_data_beside:read"
model = "own_net_beside:net"
backend = "torch"
partition = { kind = "iid", devices = 2 }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with everything a run needs; the current folder is another one."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "own_data_beside.py").write_text(DATA)
    (tmp_path / "own" / "own_net_beside.py").write_text(MODEL)
    (tmp_path / "own" / "run.toml").write_text(RUN)
    (tmp_path / "own" / "agent.toml").write_text('[data]\nsource = "own_data_beside:read"\n')
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path / "own"
    for module in ("own_data_beside", "own_net_beside"):
        sys.modules.pop(module, None)


def test_data_and_model_stand_beside_the_run_file_for_every_process_of_a_simulation(folder: Path) -> None:
    events: list[dict[str, Any]] = []
    play(load(RunFile, folder / "run.toml", environment={}), None, in_json(events.append), workers=2)
    assert events[-1]["event"] == "done"


def test_a_comparison_in_processes_finds_them_too(folder: Path) -> None:
    user_files.remember(folder / "run.toml")
    entries = variants("fedavg", read_own(folder / "run.toml"), "run.toml")
    (end,) = play_all(entries, 1, None, play, workers=2)
    assert isinstance(end, PlayedRun), end


def test_data_stand_beside_the_agent_file(folder: Path) -> None:
    file = load(AgentFile, folder / "agent.toml", environment={})
    assert len(local_data(file.data, None)) == 32


def test_a_file_of_data_is_looked_for_beside_too(folder: Path) -> None:
    (folder / "air.csv").write_text("1,2,0\n2,3,1\n" * 5)
    assert len(local_data(load(AgentFile, folder / "agent.toml", ["data.source=csv:air.csv"]).data, None)) == 8


def test_what_we_start_knows_the_same_folders(folder: Path) -> None:
    load(RunFile, folder / "run.toml", environment={})
    asked = "from edgefl.system import user_files; print(user_files.folders()[0])"
    result = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True, env=os.environ)
    assert result.stdout.strip() == str(folder)


def test_a_function_that_fails_is_one_line(folder: Path) -> None:
    load(RunFile, folder / "run.toml", environment={})
    user_code.allow(["own_data_beside:broken", "own_dta:read"])
    with pytest.raises(ConfigError, match="broken raised KeyError: 'sensor'"):
        load_source("own_data_beside:broken")
    with pytest.raises(ConfigError, match=f"No module named 'own_dta'; looked in {folder}, "):
        load_source("own_dta:read")
