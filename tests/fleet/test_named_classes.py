"""A class has the same number on every device, whatever numbers its own file gave to the names."""

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
from fleets import Fleet, loop, run_file

from edgefl.learn.data.catalog import load
from tools.in_memory_broker import InMemoryBroker

NAMES = [f"class {word}" for word in ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")]


def test_devices_that_number_their_texts_differently_train_the_same_model(tmp_path: Path) -> None:
    classes = load("synthetic").train.classes
    run = run_file({"name": "fedavg"}, task={"classes": NAMES[:classes]})
    fleet = Fleet(run, tmp_path, InMemoryBroker().client)
    for name, data in fleet.data.items():
        own = sorted(NAMES[:classes])  # as a reader of text labels numbers them
        y = np.array([own.index(NAMES[label]) for label in data.y])
        texts = replace(data, y=y, class_names=tuple(own), numbered=False)
        fleet.start(fleet.agent(name, texts))
    coordinator = fleet.coordinator()
    thread = threading.Thread(target=coordinator.run, daemon=True)
    thread.start()
    thread.join(60)
    fleet.join()
    assert coordinator.shell.artifacts.run_state is not None
    assert coordinator.shell.artifacts.run_state.sha256() == loop(run).sha256()
