"""Simulation on Ray: the bits of one process, on a cluster that loses actors and machines."""

import os
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from edgefl.config.reader import parse
from edgefl.config.schema import RunFile
from edgefl.errors import ConfigError, Diverged
from edgefl.run import job as jobs
from edgefl.run.job import Job
from edgefl.run.work import Result
from edgefl.simulation import engine_ray
from edgefl.simulation.emulator import emulate
from edgefl.simulation.engines import Engine, Order, Plan, engine
from edgefl.simulation.loop import simulate
from edgefl.tasks.form import PLAIN

TABLE: dict[str, Any] = {
    "run": {"rounds": 4, "seed": 2},
    "task": {"data": "synthetic", "model": "mlp", "partition": {"kind": "dirichlet", "omega": 0.5, "devices": 6}},
    "algorithm": {"name": "scaffold", "batch": 16, "batches": 4},  # keeps a state on every device
    "rounds": {"cohort": 4},
    "wire": {"codec": "float16"},
    "compute": {"engine": "ray"},
}

cluster_only = pytest.mark.skipif(
    os.environ.get("EDGEFL_RAY") != "1", reason="starts a Ray cluster: EDGEFL_RAY=1, or make ray"
)


def prepared(**algorithm: Any) -> tuple[Job, dict[str, Any]]:
    table = {**TABLE, "algorithm": {**TABLE["algorithm"], **algorithm}}
    job, held = jobs.prepare(parse(RunFile, table, "test", environment={}))
    return job, dict(zip(jobs.device_names(6), held.devices, strict=True))


def test_who_asks_for_ray_without_having_it_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(engine_ray, "find_spec", lambda _: None)
    plan = Plan(parse(RunFile, TABLE, "test", environment={}), None, (4,), 3, PLAIN)
    with pytest.raises(ConfigError, match=r"pip install 'edgefl\[ray\]'"), engine_ray.ray_actors(plan, {}, 1):
        pass


def test_an_address_at_which_nobody_is_is_named():
    with pytest.raises(ConfigError, match=r"RAY_ADDRESS = 127\.0\.0\.1:1: no Ray cluster there"):
        engine_ray._look_for("127.0.0.1:1")
    for elsewhere in ("", "auto", "local", "ray://127.0.0.1:1"):  # which Ray knows how to look for
        engine_ray._look_for(elsewhere)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Three raylets with one processor each, on this machine."""
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    ray = pytest.importorskip("ray")
    size = {"num_cpus": 1, "object_store_memory": 80 << 20}
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={**size, "include_dashboard": False})
    for _ in range(2):
        cluster.add_node(**size)
    ray.init(address=cluster.address, log_to_driver=False)
    cluster.wait_for_nodes()
    yield cluster
    ray.shutdown()
    cluster.shutdown()


class Disturbed:
    """An engine to which something happens when the second round has been ordered."""

    def __init__(self, actors: Engine, happens: Any) -> None:
        self.actors, self.happens, self.parallel, self.rounds = actors, happens, actors.parallel, 0

    def results(self, orders: Sequence[Order]) -> list[Result]:
        self.rounds += 1
        if self.rounds == 2:
            self.happens()
        return self.actors.results(orders)


@cluster_only
@pytest.mark.filterwarnings("ignore")  # Ray's own: sockets and files that it leaves to the garbage collector
def test_a_cluster_gives_the_model_of_one_process_bit_for_bit_whatever_it_loses(
    cluster: Any, caplog: pytest.LogCaptureFixture
):
    import ray

    job, devices = prepared()
    expected = simulate(job, devices).sha256()
    with engine(job, devices) as actors:
        assert actors.parallel == 3
        assert simulate(job, devices, engine=actors).sha256() == expected
        assert emulate(job, devices, engine=actors).sha256() == expected

        def an_actor_is_lost() -> None:
            ray.kill(all_idle(actors)[0])

        assert simulate(job, devices, engine=Disturbed(actors, an_actor_is_lost)).sha256() == expected
        assert "a Ray actor is lost" in caplog.text
        caplog.clear()

        def a_machine_is_lost() -> None:
            all_idle(actors)  # so there is one on every machine
            cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)

        assert simulate(job, devices, engine=Disturbed(actors, a_machine_is_lost)).sha256() == expected
        assert "a Ray actor is lost" in caplog.text
        cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
        all_idle(actors)  # the replacement has come up there
        assert simulate(job, devices, engine=actors).sha256() == expected


@cluster_only
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("cluster")
def test_what_a_device_says_of_its_failure_is_heard():
    job, devices = prepared(lr=1e30)
    with engine(job, devices, 2) as actors, pytest.raises(Diverged, match="device 'device-0"):
        simulate(job, devices, engine=actors)


def all_idle(actors: Any) -> list[Any]:
    """Every actor, as soon as all have come up."""
    everybody = [actors._idle.get() for _ in range(actors.parallel)]
    for actor in everybody:
        actors._idle.put(actor)
    return everybody
