"""A real agent that hears what a forger at its broker says."""

import threading
from collections.abc import Iterable
from pathlib import Path

from fleets import Fleet

from device_agent.shell.service import Agent
from edgefl.job.config.schema import RunFile
from edgefl.wire import topics
from edgefl.wire.signed import Speaker
from edgefl.wire.signing import Signer
from edgefl.wire.transport import Message
from tools.in_memory_broker import InMemoryBroker

DEVICE = "device-00"
SPEAKER = Speaker(Signer.new(), "default", 1)  # of a coordinator that lies


def sealed(payload: bytes, *, job: str = "fleet", run: str = "r") -> bytes:
    """Said to the device, as by a coordinator that lies."""
    return SPEAKER.seal("down", payload, job=job, run_id=run, device=DEVICE)


def agent_that_heard(run: RunFile, folder: Path, messages: Iterable[tuple[str, bytes]]) -> Agent:
    """The agent, after these messages (topic and payload) came from the broker, and it ended."""
    broker = InMemoryBroker()
    fleet = Fleet(run, folder, broker.client)
    host = fleet.agent(DEVICE)
    forger, announced = broker.client("forger"), threading.Event()
    forger.start(lambda event: announced.set() if isinstance(event, Message) else None)
    forger.subscribe(topics.presence("default", DEVICE))
    thread = fleet.start(host)
    assert announced.wait(60)
    for topic, payload in messages:
        forger.publish(topic, payload)
    host.stop()
    thread.join(60)
    return host.agent
