"""An agent that has nothing to train and no connection: what it says stays in its outbox, as on a very slow one."""

from pathlib import Path

import numpy as np
import pytest

from device_agent.service import Agent
from edgefl.data.dataset import Dataset
from edgefl.protocol.memory import MemoryBroker


def idle_agent(folder: Path) -> Agent:
    return Agent(
        device="pi",
        fleet="default",
        transport=MemoryBroker().client("pi"),
        data=Dataset(np.zeros((2, 3), np.float32), np.zeros(2, np.int64), 2),
        make_model=lambda *_: pytest.fail("nothing is trained here"),
        back_end="none",
        folder=folder,
    )
