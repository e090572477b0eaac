"""What runs in the processes that are killed: what the command line runs, and nothing else.

The processes are forked from a server that has imported everything, so that a new life takes a moment and not the ten
seconds that importing PyTorch takes on a busy machine.
"""

import json
import logging
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from netns import enter

from coordinator.durable import checkpoint, checkpoint_writer, segments
from coordinator.shell import service
from coordinator.start import coordinate, opened
from device_agent.start import open_agent
from edgefl.base.errors import Finished
from edgefl.base.events import Fact, Preparing, as_json
from edgefl.job.config.agent_file import AgentFile
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.system import faults
from edgefl.system.disk import FolderDisk
from edgefl.system.locks import own

RETRY = 0.05  # seconds between two attempts to write to a disk that is full for three writes only


class Teller:
    """A view that sends every event through a pipe, and arms a fault that is to come after one of them.

    `kill:2 after closed 1` ends the process right before the second write after round 1 was closed. A mere number would
    hit another write whenever something else is written too, or a device comes twice.
    """

    def __init__(self, told: Connection, fault: str = "") -> None:
        self.told = told
        kind, _, when = fault.partition(":")
        count, _, moment = when.partition(" after ")
        self.kind, self.count, self.moment = kind, int(count or 0), moment

    def tell(self, fact: Fact) -> None:
        event = as_json(fact)
        self.told.send(event)
        if self.moment and self.moment in (event["event"], f"{event['event']} {event.get('round')}"):
            faults._kind, faults._number, self.moment = self.kind, str(faults._writes + self.count), ""

    @contextmanager
    def busy(self, what: str) -> Iterator[None]:
        self.tell(Preparing(what))
        yield

    def watching(self) -> AbstractContextManager[None]:
        return nullcontext()


@dataclass(frozen=True)
class Setting:
    """Where a process lives, and what its clock says."""

    network: str = ""  # a namespace; none: ours
    ahead: float = 0.0  # seconds that the wall clock is wrong
    in_passing: bool = False  # a coordinator: its rounds share a segment of the journal, and only the first is saved


def _begin(log: Path, fault: str, place: Setting) -> None:
    if place.network:
        enter(place.network)
    if place.ahead:
        right = time.time
        time.time = lambda: right() + place.ahead
    faults._kind, _, faults._number = fault.partition(":") if " after " not in fault else ("count", "", "")
    faults._writes = 0
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    output = log.open("a", buffering=1)
    sys.stdout = sys.stderr = output
    logging.basicConfig(stream=output, level=logging.INFO, format="%(asctime)s %(name)s %(message)s", force=True)


def coordinator(table: Mapping[str, Any], log: Path, fault: str, place: Setting, told: Connection) -> None:
    """One life of `edgefl coordinator start`."""
    _begin(log, fault, place)
    service.RETRY = RETRY
    segments.ROUNDS, checkpoint_writer.APART = (
        (8, 3600.0) if place.in_passing else (1, 0.0)
    )  # however fast rounds are here
    run = parse(RunFile, dict(table), "chaos", environment={})
    here = partial(jobs.make_network, run)  # torch is imported anyway: a child would import it again
    try:
        with opened(run) as book:
            sha256 = coordinate(run, book, None, Teller(told, fault), network=here).run_state.sha256()
    except Finished:  # it was killed after all was done, and is left alone: its model must be there
        disk = FolderDisk(run.run.folder / run.run.name)
        sha256 = checkpoint.read(disk, checkpoint.generations(disk)[-1])[1]["sha256"]
    told.send({"event": "ended", "sha256": sha256, "writes": faults._writes})


def agent(table: Mapping[str, Any], log: Path, fault: str, place: Setting) -> None:
    """One life of `edgefl agent start`."""
    _begin(log, fault, place)
    file = parse(AgentFile, dict(table), "chaos", environment={})
    with own(file.agent.folder / file.agent.id):
        serving = open_agent(file, insecure=True)  # in a network namespace of its own, over passwords
        signal.signal(signal.SIGTERM, serving.stop)
        code, reason = serving.run()
    print(json.dumps({"code": code, "reason": reason}))
    sys.exit(code)
