"""Processes that play runs of one comparison make each network once, and end with the model of a run alone."""

from typing import Any

from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.lab.comparison import shared_networks
from edgefl.lab.comparison.preparing import Preparation
from edgefl.lab.comparison.shared_networks import shared
from edgefl.sim.drivers import play

TABLE: dict[str, Any] = {
    "run": {"name": "tiny", "rounds": 2},
    "task": {"data": "synthetic", "model": "softmax", "partition": {"kind": "iid", "devices": 3}},
    "algorithm": {"name": "fedavg", "batches": 2},
}


def test_a_network_is_made_by_the_first_and_read_by_the_others(monkeypatch):
    given = list[bool]()
    real = jobs.prepare

    def counting(run: RunFile, root: Any, network: Any = None, held: Any = None) -> Any:
        given.append(network is not None)
        return real(run, root, network, held)

    monkeypatch.setattr(shared_networks.jobs, "prepare", counting)
    run = parse(RunFile, TABLE, "run.toml")
    with shared():
        first, second = Preparation(), Preparation()  # as in two processes
        ends = [play(run, None, lambda _: None, prepare=one).sha256() for one in (first, second)]
    assert given == [False, True]
    assert ends[0] == ends[1]
    Preparation()(run, None)
    assert given == [False, True, False], "nothing is shared any more"
