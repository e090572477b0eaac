"""A run that goes on, as callbacks see it: its model, what they note down, and its end if they ask for it."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from inspect import signature
from pathlib import Path
from time import perf_counter
from typing import Any, TypeAlias

from edgefl.base.errors import ConfigError
from edgefl.base.events import Described, Done, Evaluated, Evaluating, Fact, Inherited, Round, Tell
from edgefl.base.vector import Array
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.job.run.job import Job, RunState
from edgefl.learn.data.split import Split
from edgefl.sim.early_end import EarlyEnd, StoppedByCallback
from edgefl.sim.own_models import OwnModels

log = logging.getLogger(__name__)

KEPT = (Evaluating, Inherited, Described, Round, Evaluated, Done)  # facts that a history consists of


class NotKept(Exception):  # noqa: N818 - no error: it ends a callback that asks for a model of long ago
    """A model of an earlier process, of which only the reports are left."""


class Running:
    """What a callback can ask of the run that it is told of: `callback(event, run)`.

    >>> import edgefl
    >>> def watch(event, run: edgefl.Running):
    ...     if isinstance(event, edgefl.base.events.Round):
    ...         run.log(largest=float(abs(run.weights()["1.weight"]).max()))
    ...         if run.round == 2:
    ...             run.stop("seen enough")
    >>> history = edgefl.simulate("softmax", "digits", fleet=4, rounds=9, callbacks=[watch])
    >>> [record["largest"] > 0 for record in history.records()], history.done.stopped
    ([True, True], 'seen enough')
    """

    def __init__(self, callbacks: "Sequence[Callback]" = ()) -> None:
        self._callbacks = [_both(callback) for callback in callbacks]
        self._job: Job | None = None
        self._state: RunState | None = None
        self._stop: str | None = None
        self._bygone: int | None = None  # the round that is told again, after an interruption
        self._began = perf_counter()
        self.facts: list[Fact] = []  # those of a history, so far
        self.logged: dict[int, dict[str, Any]] = {}  # what callbacks noted, by round
        self._unkept: set[str] = set()  # of that, what no file can hold
        self.own_models: OwnModels = {}  # of each device at the end, if the method leaves it one

    @property
    def round(self) -> int:
        """How many rounds are merged."""
        if self._bygone is not None:
            return self._bygone
        return max(0, self._state.round) if self._state else 0

    def weights(self) -> dict[str, Array]:
        """The newest model, tensor by tensor under the names of its `state_dict`."""
        if self._bygone is not None:
            raise NotKept
        if self._job is None or self._state is None:
            raise ConfigError("there is no model yet: ask for weights after the first round")
        return {name: array.copy() for name, array in self._job.model.tensors(self._state.params).items()}

    def log(self, **values: Any) -> None:
        """Note these values beside the round's own: they stand in `History.records()`."""
        if self._bygone is None:  # otherwise it was noted then
            self.logged.setdefault(self.round, {}).update(values)

    def stop(self, reason: str = "a callback asked for it") -> None:
        """End the run with the model that it has now; the others are still told of this event."""
        self._stop = reason

    # ---- what the driver is given --------------------------------------------------------------------------------

    def prepare(self, run: RunFile, root: Path | None) -> tuple[Job, Split]:
        """The job, of which this run will be."""
        self._job, held = jobs.prepare(run, root)
        return self._job, held

    def watch(self, state: RunState) -> None:
        """The run stands here now."""
        self._state = state

    def tell(self, fact: Fact) -> None:
        """Pass a fact on to the callbacks."""
        if isinstance(fact, KEPT):
            self.facts.append(fact)
        for callback in self._callbacks:
            callback(fact, self)
        if self._stop is not None and not isinstance(fact, Done):
            raise StoppedByCallback(self._stop)

    def tell_again(self, fact: Fact) -> None:
        """Tell the callbacks what was told before an interruption; who asks for the model of then is passed over."""
        if isinstance(fact, KEPT):
            self.facts.append(fact)
        self._bygone = max(0, getattr(fact, "round", 0))
        for callback in self._callbacks:
            with suppress(NotKept):
                callback(fact, self)
        self._bygone = None

    def notes(self) -> dict[str, dict[str, Any]]:
        """What was noted so far, as JSON has it; what it cannot hold is left out."""
        notes: dict[str, dict[str, Any]] = {}
        for round, values in self.logged.items():
            for name, value in values.items():
                if (text := _json(value)) is not None:
                    notes.setdefault(str(round), {})[name] = json.loads(text)
                elif name not in self._unkept:
                    self._unkept.add(name)
                    kind = type(value).__name__
                    log.warning("what a callback notes as '%s' is lost with an interruption: a %s", name, kind)
        return notes

    def remember(self, notes: Mapping[str, Mapping[str, Any]]) -> None:
        """Go on with what was noted before an interruption."""
        self.logged = {int(round): dict(values) for round, values in notes.items()}

    def ended(self, reason: str, tell: Tell) -> tuple[Job, RunState]:
        """The end of a run that was stopped: told as any other, but for what its devices alone know."""
        if self._job is None or self._state is None:
            raise ConfigError(f"the run was stopped before it began: {reason}")
        early = EarlyEnd(self._job)
        for fact in self.facts:
            early.add(fact)
        tell(replace(early.done(self._state, reason), seconds=perf_counter() - self._began, cpu_seconds=None))
        return self._job, self._state


# Told every event, with the run or without.
Callback: TypeAlias = Callable[[Fact, Running], Any] | Callable[[Fact], Any]


def _both(callback: Any) -> Callable[[Fact, Running], Any]:
    """The callback, whether it asks for the run or not (Any: from outside)."""
    if not callable(callback):
        raise ConfigError(f"callbacks: {type(callback).__name__} cannot be called; give functions of (event, run)")
    try:
        signature(callback).bind(None, None)
    except TypeError:
        return lambda fact, _: callback(fact)
    except ValueError:  # written in C, without a signature
        return lambda fact, _: callback(fact)
    return callback  # type: ignore[no-any-return]  # callable with two, which is all we can know


def _json(value: Any) -> str | None:
    try:
        return json.dumps(value, default=_listed)
    except (TypeError, ValueError):
        return None


def _listed(value: Any) -> Any:
    """Numbers of numpy and torch as Python's."""
    if not hasattr(value, "tolist"):
        raise TypeError(type(value).__name__)
    return value.tolist()


def noted(logged: Mapping[int, Mapping[str, Any]]) -> dict[int, dict[str, Any]]:
    """Return a copy that is read-only."""
    return {round: dict(values) for round, values in logged.items()}
