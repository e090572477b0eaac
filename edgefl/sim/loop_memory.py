"""What the plain loop remembers between rounds besides the run's own state: enough to go on after a restart.

It is written down as JSON and, of what devices keep and of models that they are still at work on where rounds wait for
no device, as arrays.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np

from edgefl.base.vector import State
from edgefl.job.run.job import Job, RunState
from edgefl.learn.contract import Budget, Task
from edgefl.sim.engines import Engine

_TASK = "task "  # no device is called so: its name would have to be a word of a topic


@dataclass(frozen=True, slots=True)
class LoopMemory:
    """A moment between two rounds."""

    run_state: RunState
    states: Mapping[str, State] = field(default_factory=dict)  # what devices keep, of those who keep anything
    tasks: Mapping[int, Task] = field(default_factory=dict)  # what devices may still be at work on, by round
    plain: Mapping[str, Any] = field(default_factory=dict)  # the rest, as JSON has it


# Shown at the end what each device keeps, which lasts as long as the call.
Ended: TypeAlias = Callable[[Callable[[str], State], Iterable[str]], None]
Keep: TypeAlias = Callable[[Callable[[], LoopMemory]], None]  # offered a moment between rounds; it may pass


class LoopStorage(Protocol):
    """What keeps a run: it knows where the run stood, and takes what it is offered between rounds and at the end."""

    def recall(self, job: Job) -> LoopMemory | None: ...

    def offer(self, job: Job, moment: Callable[[], LoopMemory]) -> None: ...

    def journalled(self, engine: Engine) -> AbstractContextManager[Engine]: ...

    def watch(self, run_state: RunState) -> None: ...

    def end(self, job: Job, run_state: RunState) -> None: ...


def forget(_: Callable[[], LoopMemory]) -> None:
    """Keep nothing: the default."""


def unasked(_states: Callable[[str], State], _devices: Iterable[str]) -> None:
    """Ignore what devices keep at the end: the default."""


def written(memory: LoopMemory) -> tuple[State, dict[str, Any]]:
    """The memory without the run's own state: as one table of arrays, and as JSON."""
    table = {f"{device}/{key}": array for device, state in memory.states.items() for key, array in state.items()}
    for round, task in memory.tasks.items():
        table |= {f"{_TASK}{round}/params": task.params}
        table |= {} if task.previous is None else {f"{_TASK}{round}/previous": task.previous}
        table |= {f"{_TASK}{round}/extra/{key}": np.asarray(value) for key, value in task.extra.items()}
    tasks = {round: {"evaluates": task.evaluates} for round, task in memory.tasks.items()}
    return table, {"plain": dict(memory.plain), "tasks": tasks}


def remembered(run_state: RunState, table: State, about: Mapping[str, Any]) -> LoopMemory:
    """The memory behind what was written."""
    states: dict[str, State] = {}
    for name, array in table.items():
        owner, _, key = name.partition("/")
        states.setdefault(owner, {})[key] = array
    tasks = {
        int(round): _task(int(round), states.pop(f"{_TASK}{round}"), **more) for round, more in about["tasks"].items()
    }
    return LoopMemory(run_state, states, tasks, about["plain"])


def _task(round: int, table: State, *, evaluates: int | None) -> Task:
    extra = {name.removeprefix("extra/"): array for name, array in table.items() if name.startswith("extra/")}
    return Task(round, table["params"], Budget(), extra, table.get("previous"), "train", evaluates)


def kept(states: Callable[[str], State], devices: Iterable[str]) -> dict[str, State]:
    """Of these devices, those who keep something."""
    return {device: state for device in devices if (state := states(device))}
