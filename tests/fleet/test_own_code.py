"""One of everything of the operator's own, as the guide shows it, over a transport."""

import re
import sys
from pathlib import Path

import pytest
from fleets import Fleet, loop

from edgefl.config.agent_file import AgentFile
from edgefl.config.reader import load
from edgefl.config.schema import RunFile
from edgefl.protocol.in_memory_broker import InMemoryBroker

GUIDE = Path(__file__).parents[2] / "docs" / "extending.md"


def block(kind: str, begins: str) -> str:
    blocks: list[str] = re.findall(rf"```{kind}\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    return next(text for text in blocks if text.startswith(begins))


def test_devices_run_it_if_their_agent_files_list_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(block("python", '"""One'))
    (tmp_path / "run.toml").write_text(block("toml", "[run]"))
    (tmp_path / "agent.toml").write_text(block("toml", "[compute]"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    file = load(RunFile, tmp_path / "run.toml")
    compute = load(AgentFile, tmp_path / "agent.toml").compute
    assert set(compute.factories) == set(file.code())
    fleet = Fleet(file, tmp_path / "fleet", InMemoryBroker().client)
    for name in fleet.data:
        fleet.start(fleet.agent(name, compute=compute))
    run_state = fleet.coordinator().run()
    fleet.join()
    assert run_state.sha256() == loop(file).sha256()
