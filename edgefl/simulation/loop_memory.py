"""What the plain loop remembers between rounds besides the run's own state: enough to go on after a restart.

It is written down as JSON and, of what devices keep, as arrays. Where rounds wait for nobody there is more to
remember (models that devices are still at work on), and nothing is written.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from edgefl.run.job import Job, RunState
from edgefl.vector import State


@dataclass(frozen=True, slots=True)
class LoopMemory:
    """A moment between two rounds."""

    run_state: RunState
    states: Mapping[str, State] = field(default_factory=dict)  # what devices keep, of those who keep anything
    plain: Mapping[str, Any] = field(default_factory=dict)  # the rest, as JSON has it


Keep: TypeAlias = Callable[[Callable[[], LoopMemory]], None]  # offered a moment between rounds; it may pass


class Keeper(Protocol):
    """Somebody who keeps a run: knows where it stood, takes what it is offered between rounds, and its end."""

    def recall(self, job: Job) -> LoopMemory | None: ...

    def offer(self, job: Job, moment: Callable[[], LoopMemory]) -> None: ...

    def watch(self, run_state: RunState) -> None: ...

    def end(self, job: Job, run_state: RunState) -> None: ...


def forget(_: Callable[[], LoopMemory]) -> None:
    """Nobody keeps anything."""


def arrays(states: Mapping[str, State]) -> State:
    """The states of all devices as one table of arrays."""
    return {f"{device}/{key}": array for device, state in states.items() for key, array in state.items()}


def by_device(table: State) -> dict[str, State]:
    """The states behind such a table."""
    states: dict[str, State] = {}
    for name, array in table.items():
        device, _, key = name.partition("/")
        states.setdefault(device, {})[key] = array
    return states


def kept(states: Callable[[str], State], devices: Iterable[str]) -> dict[str, State]:
    """Of these devices, those who keep something."""
    return {device: state for device in devices if (state := states(device))}
