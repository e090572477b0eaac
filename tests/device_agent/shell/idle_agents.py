"""An agent that has nothing to train and no connection: what it says stays in its outbox, as on a very slow one."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from device_agent.shell.service import Agent
from device_agent.shell.setup import DeviceIdentity, TrainingSetup
from edgefl.learn.data.dataset import Dataset
from edgefl.system.background import Background, Work
from edgefl.system.clock import Clock
from edgefl.system.disk import Disk, FolderDisk
from edgefl.wire.wiring import Wiring
from tools.in_memory_broker import InMemoryBroker


@dataclass
class Stopped:
    """A clock that somebody moves by hand."""

    time: float = 1000.0

    def now(self) -> float:
        return self.time

    def wall(self) -> float:
        return self.time


@dataclass
class Later:
    """A background that begins nothing before it is told to."""

    waiting: list[Work] = field(default_factory=list)

    def start(self, work: Work) -> None:
        self.waiting.append(work)

    def cancel(self) -> None:
        self.waiting.clear()

    def close(self) -> None:
        self.waiting.clear()


ZEROS = Dataset(np.zeros((2, 3), np.float32), np.zeros(2, np.int64), 2)


def idle_agent(
    folder: Path | Disk,
    data: Dataset = ZEROS,
    *,
    clock: Clock | None = None,
    background: Background | None = None,
    **about: Any,
) -> Agent:
    """Without a connection; `about`: scope, limits and hooks."""
    return Agent(
        DeviceIdentity("pi", "default", "none"),
        Wiring(InMemoryBroker().client("pi"), clock or Stopped(), background or Later(), put=lambda _: None),
        FolderDisk(folder) if isinstance(folder, Path) else folder,
        TrainingSetup(data, lambda *_: pytest.fail("nothing is trained here")),
        **about,
    )
