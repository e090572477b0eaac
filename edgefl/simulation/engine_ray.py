"""Devices train in actors on a Ray cluster; each has built its model, and everybody's data are there once on a node.

An order is the whole of a device's work, so whoever carries it out gives the same bits. An actor that is lost, alone
or with its machine, is replaced; its order goes to the next that is free, and the round goes on with those that are
left until the replacement has come up.
"""

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from queue import SimpleQueue
from socket import create_connection
from threading import Lock
from typing import Any, TypeAlias, TypeVar

import numpy as np

from edgefl.contract import Task
from edgefl.data.dataset import Dataset
from edgefl.errors import ConfigError, RunError
from edgefl.run.work import Done, ModelRef, Result
from edgefl.simulation.engines import Order, Plan, done, result, workers
from edgefl.vector import State, Vector

Actor: TypeAlias = Any  # Ray makes their class while it runs
T = TypeVar("T", Done, Result)

NOTHING = np.zeros(0, np.float32)
PATIENCE = 5.0  # seconds until the head of a cluster must have answered

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Told:
    """What all devices of a round are told: it travels once to each node, not with every order."""

    params: Vector
    extra: State
    previous: Vector | None


class Trainer:
    """What an actor is: the devices of a run, and a model of its own."""

    def __init__(self, plan: Plan, devices: Mapping[str, Dataset]) -> None:
        self._workers = workers(plan.run, plan.model(), devices)

    def ready(self) -> bool:
        return True

    def done(self, told: Told, order: Order, model_ref: ModelRef) -> Done:
        return done(self._workers[order.device], model_ref, _whole(order, told))

    def result(self, told: Told, order: Order) -> Result:
        return result(self._workers[order.device], _whole(order, told))


class RayActors:
    """Actors, and threads that wait for them; whoever has an order borrows one that is idle."""

    def __init__(self, ray: Any, plan: Plan, devices: Mapping[str, Dataset], parallel: int) -> None:
        """`ray` is the module, where it is installed."""
        self._ray, self.parallel = ray, parallel
        self._given = ray.put(plan), ray.put(dict(devices))
        self._kind = ray.remote(num_cpus=1, scheduling_strategy="SPREAD")(Trainer)
        self._idle: SimpleQueue[Actor | None] = SimpleQueue()  # None: there will be none any more
        self._lock, self._closed = Lock(), False
        self._left = parallel  # actors that work, are idle or come up
        self._told: tuple[Task, Any] | None = None  # the last task whose model was sent, and where it is
        self._executor = ThreadPoolExecutor(parallel, "ray")
        first = [self._kind.remote(*self._given) for _ in range(parallel)]
        ray.get([actor.ready.remote() for actor in first])
        for actor in first:
            self._idle.put(actor)

    def train(self, model_ref: ModelRef, orders: Sequence[Order]) -> list[Done]:
        """In the thread of whoever asks: an emulated fleet has threads of its own."""
        return [self._sent(order, lambda actor, *given: actor.done.remote(*given, model_ref)) for order in orders]

    def results(self, orders: Sequence[Order]) -> list[Result]:
        return list(self._executor.map(self._result, orders))

    def close(self) -> None:
        """End the actors; one that still comes up ends when nobody holds it any more."""
        self._closed = True
        self._executor.shutdown()
        while not self._idle.empty():
            if (actor := self._idle.get()) is not None:
                self._ray.kill(actor)

    def _result(self, order: Order) -> Result:
        answer: Result = self._sent(order, lambda actor, *given: actor.result.remote(*given))
        # What Ray gives lies in its store and stays there as long as somebody looks at it: a device keeps its own copy.
        extra = {name: array.copy() for name, array in answer.update.extra.items()}
        update = replace(answer.update, delta=answer.update.delta.copy(), extra=extra)
        return replace(answer, update=update, kept={name: array.copy() for name, array in answer.kept.items()})

    def _sent(self, order: Order, start: Callable[..., Any]) -> Any:
        """What an actor made of the order; if it is lost meanwhile, what the next one makes of it."""
        exceptions = self._ray.exceptions
        lean, told = _lean(order), self._put(order.task)
        while True:
            if (actor := self._idle.get()) is None:
                self._idle.put(None)  # for whoever else waits
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
                self._told = task, self._ray.put(Told(task.params, task.extra, task.previous))
            return self._told[1]


@contextmanager
def ray_actors(plan: Plan, devices: Mapping[str, Dataset], parallel: int | None) -> Iterator[RayActors]:
    """Actors on the cluster of RAY_ADDRESS, or of whoever has connected already; without one, on this machine.

    There are as many as the cluster has processors, unless it is said. They end with the block.
    """
    if find_spec("ray") is None:
        raise ConfigError("compute.engine = 'ray' needs Ray: pip install 'edgefl[ray]'")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing reports to anybody, unless its owner says so
    import ray  # noqa: PLC0415 - an extra

    ours = not ray.is_initialized()
    if ours:
        address = os.environ.get("RAY_ADDRESS", "")
        _look_for(address)
        try:
            ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        except ConnectionError as error:
            raise ConfigError(
                f"RAY_ADDRESS = {address}: {error}; if it asks for a token, set RAY_AUTH_MODE=token and"
                " RAY_AUTH_TOKEN_PATH here as there"
            ) from None
    try:
        actors = RayActors(ray, plan, devices, parallel or int(ray.cluster_resources().get("CPU", 1)))
        try:
            yield actors
        finally:
            actors.close()
    finally:
        if ours:
            ray.shutdown()


def _look_for(address: str) -> None:
    """Refuse an address at which nobody is: Ray would wait there for many minutes."""
    host, _, port = address.rpartition(":")
    if "/" in address or not port.isdigit():
        return  # "auto", "local", or a scheme of Ray's own
    try:
        create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()
    except OSError as error:
        raise ConfigError(
            f"RAY_ADDRESS = {address}: no Ray cluster there ({error}); start it: ray start --head"
        ) from None


def _lean(order: Order) -> Order:
    """The order without what all of the round share."""
    return replace(order, task=replace(order.task, params=NOTHING, extra={}, previous=None))


def _whole(order: Order, told: Told) -> Order:
    task = replace(order.task, params=told.params, extra=told.extra, previous=told.previous)
    return replace(order, task=task)
