"""Simulation on Ray: the bits of one process, on a cluster that loses actors and machines."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from edgefl.base.errors import CodeRefused, ConfigError, Diverged
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.job.run.job import Job
from edgefl.job.run.work import Result
from edgefl.learn.tasks.form import PLAIN
from edgefl.sim import engine_ray
from edgefl.sim.emulator import emulate
from edgefl.sim.engines import DeviceOrder, Engine, ModelRecipe, engine
from edgefl.sim.loop import simulate
from edgefl.system import user_code

TABLE: dict[str, Any] = {
    "run": {"rounds": 4, "seed": 2},
    "task": {"data": "synthetic", "model": "mlp", "partition": {"kind": "dirichlet", "omega": 0.5, "devices": 6}},
    "algorithm": {"name": "scaffold", "batch": 16, "batches": 4},  # keeps a state on every device
    "rounds": {"cohort": 4},
    "wire": {"codec": "float16"},
    "compute": {"engine": "ray"},
}

cluster_only = pytest.mark.skipif(
    os.environ.get("EDGEFL_RAY") != "1", reason="starts a Ray cluster: EDGEFL_RAY=1, or make -f scripts/Makefile ray"
)


def prepared(**algorithm: Any) -> tuple[Job, dict[str, Any]]:
    table = {**TABLE, "algorithm": {**TABLE["algorithm"], **algorithm}}
    job, held = jobs.prepare(parse(RunFile, table, "test", environment={}))
    return job, dict(zip(jobs.device_names(6), held.devices, strict=True))


def test_who_asks_for_ray_without_having_it_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(engine_ray, "find_spec", lambda _: None)
    plan = ModelRecipe(parse(RunFile, TABLE, "test", environment={}), None, (4,), 3, PLAIN)
    with pytest.raises(ConfigError, match=r"pip install 'edgefl\[ray\]'"), engine_ray.ray_actors(plan, {}, 1):
        pass


def test_an_address_at_which_nobody_is_is_named():
    with pytest.raises(ConfigError, match=r"RAY_ADDRESS = 127\.0\.0\.1:1: no Ray cluster there"):
        engine_ray._look_for("127.0.0.1:1")
    for elsewhere in ("", "auto", "local", "ray://127.0.0.1:1"):  # which Ray knows how to look for
        engine_ray._look_for(elsewhere)


def test_a_ray_whose_clusters_ask_for_no_token_is_refused_on_this_machine(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(engine_ray, "find_spec", lambda _: True)
    monkeypatch.setattr(engine_ray.metadata, "version", lambda _: "2.51.3")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    plan = ModelRecipe(parse(RunFile, TABLE, "test", environment={}), None, (4,), 3, PLAIN)
    with pytest.raises(ConfigError, match=r"Ray 2\.51\.3 lets every user"), engine_ray.ray_actors(plan, {}, 1):
        raise AssertionError


class RayStandIn:
    """Takes down what a cluster of our own is asked for; it starts nothing."""

    def __init__(self) -> None:
        self.arguments: dict[str, Any] = {}
        self.environment: dict[str, str] = {}
        self.mode, self.read, self.ended = 0, list[str | None](), 0
        self._raylet = self.Config = self.AuthenticationTokenLoader = self

    def initialize(self, _text: str) -> None:
        self.read.append(os.environ.get("RAY_AUTH_TOKEN"))

    def instance(self) -> "RayStandIn":
        return self

    def reset_cache(self) -> None:
        self.read.append(os.environ.get("RAY_AUTH_MODE"))

    def init(self, **arguments: Any) -> None:
        self.arguments, self.environment = arguments, dict(os.environ)
        self.mode = Path(arguments["_temp_dir"]).parent.stat().st_mode & 0o777

    def shutdown(self) -> None:
        self.ended += 1


def test_a_cluster_of_our_own_asks_for_a_token_in_a_folder_of_ours(monkeypatch: pytest.MonkeyPatch):
    ray = RayStandIn()
    monkeypatch.setattr(engine_ray.metadata, "version", lambda _: ".".join(map(str, engine_ray.WITH_TOKENS)))
    monkeypatch.setattr(engine_ray, "import_module", lambda _: ray)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "of the caller")
    for name in ("RAY_ADDRESS", "RAY_AUTH_MODE"):
        monkeypatch.delenv(name, raising=False)
    with engine_ray._own_cluster() as connected:
        assert connected is ray
        folder = Path(ray.arguments["_temp_dir"]).parent
        assert (ray.arguments["address"], ray.arguments["include_dashboard"]) == ("local", False)
        token = ray.environment["RAY_AUTH_TOKEN"]
        assert ray.environment["RAY_AUTH_MODE"] == "token"
        assert len(bytes.fromhex(token)) == 32
        assert (ray.mode, ray.read) == (0o700, [token, "token"]), "Ray reads its environment before it starts"
    assert (ray.ended, folder.exists(), os.environ["RAY_AUTH_TOKEN"]) == (1, False, "of the caller")
    assert ray.read[2:] == ["of the caller", None]


INTRUDER = """
import sys, ray
ray.init(address=sys.argv[1], log_to_driver=False)
print("inside")
"""


@cluster_only
@pytest.mark.filterwarnings("ignore")
def test_a_cluster_of_our_own_lets_no_other_user_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    pytest.importorskip("ray")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with engine_ray._connected() as ray:
        address = ray.get_runtime_context().gcs_address
        folder = Path(ray._private.worker._global_node.get_session_dir_path()).parents[1]
        assert folder.stat().st_mode & 0o777 == 0o700
        others = {name: value for name, value in os.environ.items() if name != "RAY_AUTH_TOKEN"}
        told = []
        for token in ({}, {"RAY_AUTH_TOKEN": "0" * 64}, {"RAY_AUTH_TOKEN": os.environ["RAY_AUTH_TOKEN"]}):
            done = subprocess.run(
                [sys.executable, "-c", INTRUDER, address],
                env={**others, **token, "HOME": str(tmp_path)},
                capture_output=True,
                text=True,
                check=False,
                timeout=120,
            )
            told.append("inside" in done.stdout)
    assert told == [False, False, True], "the last one shows that it is the token that decides"
    assert "RAY_AUTH_TOKEN" not in os.environ


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

    def results(self, orders: Sequence[DeviceOrder]) -> list[Result]:
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


def test_an_actor_may_run_the_code_that_the_simulation_may(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {**TABLE, "task": {**TABLE["task"], "loss": "edgefl.learn.losses:cross_entropy"}}
    user_code.allow_in(table)
    plan, places = ModelRecipe(parse(RunFile, table, "test", environment={}), None, (4,), 3, PLAIN), user_code.allowed()
    monkeypatch.setenv(user_code.PLACES, "")  # of an actor, which came up before this simulation
    monkeypatch.setattr(ModelRecipe, "model", lambda _: None)
    with pytest.raises(CodeRefused):
        engine_ray.RayTrainer(plan, {}, ())
    engine_ray.RayTrainer(plan, {}, places)
