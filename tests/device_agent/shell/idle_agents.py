"""An agent that has nothing to train and no connection: what it says stays in its outbox, as on a very slow one."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from device_agent.shell.service import Agent
from edgefl.learn.data.dataset import Dataset
from edgefl.system.background import Work
from edgefl.system.disk import Disk, FolderDisk
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


def idle_agent(folder: Path | Disk, **more: Any) -> Agent:
    data = Dataset(np.zeros((2, 3), np.float32), np.zeros(2, np.int64), 2)
    about: dict[str, Any] = {"clock": Stopped(), "background": Later(), "put": lambda _: None, "data": data, **more}
    return Agent(
        device="pi",
        fleet="default",
        transport=InMemoryBroker().client("pi"),
        make_model=lambda *_: pytest.fail("nothing is trained here"),
        back_end="none",
        disk=FolderDisk(folder) if isinstance(folder, Path) else folder,
        **about,
    )
