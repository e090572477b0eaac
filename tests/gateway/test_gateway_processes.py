"""A gateway as it is started: real processes, two real brokers, the same model as the loop's but for rounding."""

import subprocess
import sys
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from fleets import loop, run_file

from coordinator.durable import checkpoint, identity
from edgefl.job.run import job as jobs
from edgefl.job.run.local_fleet import trial_data
from edgefl.system.disk import FolderDisk
from edgefl.wire import broker

EDGEFL = [str(Path(sys.executable).with_name("edgefl"))]

pytestmark = pytest.mark.broker


def test_a_gateway_and_its_devices_end_with_the_model_of_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    alone = run_file({"name": "fedavg"}, rounds={"cohort": 4, "quorum": 4}, run={"rounds": 2})
    with ExitStack() as until_done:
        centre, north = (until_done.enter_context(broker.start()).address for _ in range(2))
        run = run_file(
            {"name": "fedavg"},
            run={"rounds": 2, "folder": str(tmp_path / "runs")},
            rounds={"cohort": 2, "quorum": 2, "start_with": 2, "deadline": 120.0},
            guards={"speaks_for": 3},
            broker={"url": str(centre)},
            page={"serve": False},
        )
        file = tmp_path / "run.toml"
        file.write_text(_toml(run.model_dump(mode="json", exclude_unset=True)))
        key, number = identity.signer(run).key, count()

        def start(*words: str) -> subprocess.Popen[str]:
            log = until_done.enter_context((tmp_path / f"{words[0]}-{next(number)}.log").open("w"))
            process = subprocess.Popen([*EDGEFL, *words], stdout=log, stderr=log, text=True)
            until_done.callback(process.wait, 30)
            until_done.callback(process.terminate)
            return process

        agents = []
        for part, name in enumerate(jobs.device_names(4)):
            behind = part > 0
            agent = {"id": name, "broker": str(north if behind else centre), "folder": str(tmp_path / "agents")}
            agent |= {"fleet": "north", "models": key} if behind else {}
            path = tmp_path / f"{name}.toml"
            path.write_text(_toml({"agent": agent, "data": trial_data(run, part)}))
            agents.append(start("agent", "start", str(path), "--once"))
        site = {
            "gateway": {"id": "gw", "broker": str(centre), "folder": str(tmp_path / "agents")},
            "broker": {"url": str(north), "fleet": "north"},
            "site": {"devices": 3, "quorum": 3, "deadline": 60.0},
        }
        (tmp_path / "gateway.toml").write_text(_toml(site))
        start("gateway", "start", str(tmp_path / "gateway.toml"))
        coordinator = start("coordinator", "start", str(file), "--no-rehearse")
        assert coordinator.wait(120) == 0
        assert [agent.wait(30) for agent in agents] == [0, 0, 0, 0]
        saved = checkpoint.latest(FolderDisk(tmp_path / "runs" / "fleet"), jobs.prepare(run)[0])
        assert saved is not None
        ours, theirs = saved.run_state.params.astype(np.float64), loop(alone).params
        assert np.linalg.norm(ours - theirs) < 1e-6 * np.linalg.norm(theirs)


def _toml(tables: dict) -> str:
    from edgefl.job.config.toml_text import table

    return "\n".join(table(title, one) for title, one in tables.items())
