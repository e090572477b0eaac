"""Devices train in actors on a Ray cluster; each has built its model, and the data of all devices are there once on a
node.

An order is the whole of a device's work, so any actor that carries it out gives the same bits. An actor that is lost,
alone or with its machine, is replaced; its order goes to the next that is free, and the round goes on with those that
are left until the replacement has come up.
"""

import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module, metadata
from importlib.util import find_spec
from queue import SimpleQueue
from secrets import token_hex
from socket import create_connection
from threading import Lock
from typing import Any, TypeAlias, TypeVar

import numpy as np

from edgefl.base.errors import ConfigError, RunError
from edgefl.base.vector import State, Vector
from edgefl.job.run.work import ModelRef, Result, WorkResult
from edgefl.learn.contract import Task
from edgefl.learn.data.dataset import Dataset
from edgefl.sim.engines import DeviceOrder, ModelRecipe, done, result, workers
from edgefl.system import user_code
from edgefl.system.environment import environment
from edgefl.system.scratch import Scratch

Actor: TypeAlias = Any  # Ray makes their class while it runs
T = TypeVar("T", WorkResult, Result)

NOTHING = np.zeros(0, np.float32)
PATIENCE = 5.0  # seconds until the head of a cluster must have answered
WITH_TOKENS = (2, 52)  # the first version of Ray whose clusters can ask for a token
QUIET: Mapping[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RoundBroadcast:
    """What all devices of a round are told: it travels once to each node, not with every order."""

    params: Vector
    extra: State
    previous: Vector | None


class RayTrainer:
    """What an actor is: the devices of a run, and a model of its own.

    It may run the code that the operator named for the simulation; it does not have its environment.
    """

    def __init__(self, plan: ModelRecipe, devices: Mapping[str, Dataset], code: Sequence[str] = ()) -> None:
        user_code.allow(code)
        self._workers = workers(plan.run, plan.model(), devices)

    def ready(self) -> bool:
        return True

    def done(self, told: RoundBroadcast, order: DeviceOrder, model_ref: ModelRef) -> WorkResult:
        return done(self._workers[order.device], model_ref, _whole(order, told))

    def result(self, told: RoundBroadcast, order: DeviceOrder) -> Result:
        return result(self._workers[order.device], _whole(order, told))


class RayActors:
    """Actors, and threads that wait for them; a thread with an order borrows an idle actor."""

    def __init__(self, ray: Any, plan: ModelRecipe, devices: Mapping[str, Dataset], parallel: int) -> None:
        """`ray` is the module, where it is installed."""
        self._ray, self.parallel = ray, parallel
        self._given = ray.put(plan), ray.put(dict(devices)), user_code.allowed()
        self._kind = ray.remote(num_cpus=1, scheduling_strategy="SPREAD")(RayTrainer)
        self._idle: SimpleQueue[Actor | None] = SimpleQueue()  # None: there will be none any more
        self._lock, self._closed = Lock(), False
        self._left = parallel  # actors that work, are idle or come up
        self._told: tuple[Task, Any] | None = None  # the last task whose model was sent, and where it is
        self._executor = ThreadPoolExecutor(parallel, "ray")
        first = [self._kind.remote(*self._given) for _ in range(parallel)]
        ray.get([actor.ready.remote() for actor in first])
        for actor in first:
            self._idle.put(actor)

    def train(self, model_ref: ModelRef, orders: Sequence[DeviceOrder]) -> list[WorkResult]:
        """Train in the calling thread: an emulated fleet has threads of its own."""
        return [self._sent(order, lambda actor, *given: actor.done.remote(*given, model_ref)) for order in orders]

    def results(self, orders: Sequence[DeviceOrder]) -> list[Result]:
        return list(self._executor.map(self._result, orders))

    def close(self) -> None:
        """End the actors; one that still comes up ends with its last reference."""
        self._closed = True
        self._executor.shutdown()
        while not self._idle.empty():
            if (actor := self._idle.get()) is not None:
                self._ray.kill(actor)

    def _result(self, order: DeviceOrder) -> Result:
        answer: Result = self._sent(order, lambda actor, *given: actor.result.remote(*given))
        # What Ray gives lies in its store and stays there as long as it is referenced: a device keeps its own copy.
        extra = {name: array.copy() for name, array in answer.update.extra.items()}
        update = replace(answer.update, delta=answer.update.delta.copy(), extra=extra)
        return replace(answer, update=update, kept={name: array.copy() for name, array in answer.kept.items()})

    def _sent(self, order: DeviceOrder, start: Callable[..., Any]) -> Any:
        """What an actor made of the order; if it is lost meanwhile, what the next one makes of it."""
        exceptions = self._ray.exceptions
        lean, told = _lean(order), self._put(order.task)
        while True:
            if (actor := self._idle.get()) is None:
                self._idle.put(None)  # for the other threads that wait
                raise RunError("every Ray actor is lost, and no new one could be started")
            try:
                answer = self._ray.get(start(actor, told, lean))
            except exceptions.RayActorError:
                log.warning(
                    "a Ray actor is lost, its work is done again device=%s round=%d", order.device, order.task.round
                )
                self._replace()
                continue
            except exceptions.RayTaskError as error:
                self._idle.put(actor)
                raise error.cause from None
            self._idle.put(actor)
            return answer

    def _replace(self) -> None:
        """Start another actor; it is idle when it has come up, which may be when its cluster has room again."""
        if self._closed:
            return
        actor = self._kind.remote(*self._given)

        def up(ready: "Future[bool]") -> None:
            error = ready.exception()
            if error is None:
                self._idle.put(actor)
                return
            if isinstance(error, self._ray.exceptions.RayActorError) and not error.actor_init_failed:
                self._replace()  # it was lost before it came up
                return
            log.warning("a Ray actor cannot be started: %s", error)
            with self._lock:
                self._left -= 1
                if not self._left:
                    self._idle.put(None)

        actor.ready.remote().future().add_done_callback(up)

    def _put(self, task: Task) -> Any:
        """Where the model of this task is; all orders of a round share it."""
        with self._lock:
            if self._told is None or self._told[0].params is not task.params or self._told[0].extra is not task.extra:
                self._told = task, self._ray.put(RoundBroadcast(task.params, task.extra, task.previous))
            return self._told[1]


@contextmanager
def ray_actors(plan: ModelRecipe, devices: Mapping[str, Dataset], parallel: int | None) -> Iterator[RayActors]:
    """Actors on the cluster of RAY_ADDRESS, or on the one that is connected already; without one, on this machine.

    There are as many as the cluster has processors, unless it is said. They end with the block.
    """
    if find_spec("ray") is None:
        raise ConfigError("compute.engine = 'ray' needs Ray: pip install 'edgefl[ray]'")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no telemetry, unless its owner says so
    with _connected() as ray:
        actors = RayActors(ray, plan, devices, parallel or int(ray.cluster_resources().get("CPU", 1)))
        try:
            yield actors
        finally:
            actors.close()


@contextmanager
def _connected() -> Iterator[Any]:
    """Yield the module `ray`, connected to a cluster; a connection that was made for the block ends with it."""
    address = os.environ.get("RAY_ADDRESS", "")
    if "ray" in sys.modules and sys.modules["ray"].is_initialized():  # the caller has connected already
        yield sys.modules["ray"]
    elif address in {"", "local"}:
        with _own_cluster() as ray:
            yield ray
    else:
        _look_for(address)
        ray = import_module("ray")  # an extra
        try:
            ray.init(include_dashboard=False, **QUIET)
        except ConnectionError as error:
            raise ConfigError(
                f"RAY_ADDRESS = {address}: {error}; if it asks for a token, set RAY_AUTH_MODE=token and"
                " RAY_AUTH_TOKEN_PATH here as there"
            ) from None
        try:
            yield ray
        finally:
            ray.shutdown()


@contextmanager
def _own_cluster() -> Iterator[Any]:
    """Yield the module `ray` with a cluster on this machine that no other user can reach; it ends with the block.

    A user who reaches a cluster runs code on it. Its ports are open to every user of the machine, so its processes ask
    for a token. Only their environment holds it, because Ray's own file (~/.ray/auth_token) may be readable by others.
    Its sockets and logs lie in a folder of this user's; Ray's default in /tmp can be entered by all. And it is asked
    for by name: otherwise Ray first connects to whatever cluster a file in /tmp names, which any user can write.
    """
    installed = metadata.version("ray")
    if tuple(int(part) for part in installed.split(".")[:2]) < WITH_TOKENS:
        raise ConfigError(
            f"compute.engine = 'ray': Ray {installed} lets every user of this machine run code on a cluster;"
            " pip install --upgrade 'edgefl[ray]'"
        )
    ray = import_module("ray")
    with Scratch("edgefl-ray-", "/tmp") as folder:  # noqa: S108 - the names of sockets must be short
        with environment(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=_token()):
            _read_environment(ray)
            inside = str(folder.path / "ray")  # Ray lets all users into the folder that it is given
            ray.init(address="local", include_dashboard=False, _temp_dir=inside, **QUIET)
            try:
                yield ray
            finally:
                ray.shutdown()
        _read_environment(ray)


def _read_environment(ray: Any) -> None:
    """Let Ray know of a changed environment: it looks there when it is imported, and never again."""
    ray._raylet.Config.initialize("")  # noqa: SLF001 - there is no other way to it
    ray._raylet.AuthenticationTokenLoader.instance().reset_cache()  # noqa: SLF001 - likewise


@cache
def _token() -> str:
    """Return the secret of this process's clusters."""
    return token_hex(32)


def _look_for(address: str) -> None:
    """Refuse an address where nothing listens: Ray would wait there for many minutes."""
    host, _, port = address.rpartition(":")
    if "/" in address or not port.isdigit():
        return  # "auto", "local", or a scheme of Ray's own
    try:
        create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()
    except OSError as error:
        raise ConfigError(
            f"RAY_ADDRESS = {address}: no Ray cluster there ({error}); start it: ray start --head"
        ) from None


def _lean(order: DeviceOrder) -> DeviceOrder:
    """The order without what all of the round share."""
    return replace(order, task=replace(order.task, params=NOTHING, extra={}, previous=None))


def _whole(order: DeviceOrder, told: RoundBroadcast) -> DeviceOrder:
    task = replace(order.task, params=told.params, extra=told.extra, previous=told.previous)
    return replace(order, task=task)
