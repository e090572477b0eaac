"""A device without a device: announces itself, and answers every task with whatever it is told to."""

import threading
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from edgefl.base.errors import WireError
from edgefl.base.vector import Array
from edgefl.wire import calls, chunks, signed, tensors, topics
from edgefl.wire.codecs import Float32
from edgefl.wire.messages import (
    CALL,
    TO_DEVICE,
    Answer,
    Assignment,
    DeclinedMessage,
    Missing,
    Presence,
    Receipt,
    ToDevice,
    frame,
    read,
)
from edgefl.wire.signed import Speaker
from edgefl.wire.signing import Signer
from edgefl.wire.transport import ConnectionMade, Message, Transport, TransportEvent, Will


class Puppet:
    """`act` is called with every task, from the transport's thread."""

    def __init__(
        self,
        name: str,
        transport: Transport,
        act: Callable[["Puppet", Assignment], None],
        *,
        job: str,
        concise: bool = False,
    ) -> None:
        self.name, self.transport, self.act, self.job, self.concise = name, transport, act, job, concise
        self.assembler = chunks.Assembler(1 << 24)
        self.verdicts: list[tuple[str, str]] = []
        self.missing: list[Missing] = []
        self.asked = 0
        self.ready = threading.Event()
        self.speaker, self.run = Speaker(Signer.new(), "default", 1), ""

    def start(self) -> None:
        self.transport.start(self._deliver, Will(topics.presence("default", self.name), self._presence(online=False)))

    def _presence(self, *, online: bool) -> bytes:
        return self.presence(Presence(online=online, installation=self.name, birth=1, samples=10, concise=self.concise))

    def presence(self, content: Presence) -> bytes:
        """Signed, whatever it says."""
        return self.speaker.seal("presence", content.model_dump_json().encode(), device=self.name)

    def _deliver(self, event: TransportEvent) -> None:
        if isinstance(event, ConnectionMade):
            self.transport.subscribe(topics.down("default", self.job, self.name), topics.round("default", self.job))
            self.transport.publish(topics.presence("default", self.name), self._presence(online=True), retain=True)
            self.ready.set()
        if isinstance(event, Message):
            try:
                envelope = signed.opened(event.payload)
                self.run = envelope.run_id
                whole = self.assembler.add(envelope.payload)
            except WireError:
                return
            message = self._meant(event.topic, whole[1]) if whole else None
            if isinstance(message, Missing):
                self.missing.append(message)
            if isinstance(message, Receipt):
                self.verdicts.append((message.verdict, message.reason))
            if isinstance(message, Assignment):
                self.asked += 1
                self.act(self, message)

    def _meant(self, topic: str, data: bytes | bytearray) -> ToDevice | None:
        if topic != topics.round("default", self.job):
            return read(TO_DEVICE, data, 1 << 24)[0]
        call, came = read(CALL, data, 1 << 24)
        return calls.own_task("default", call, self.name, self.name, came.body)

    def say(self, data: bytes) -> None:
        for part in chunks.split(data, chunks.digest(data)):
            self.publish(part)

    def publish(self, payload: bytes) -> None:
        """Signed, whatever it is; before the first task nobody knows what the run is called."""
        sealed = self.speaker.seal("up", payload, job=self.job, run_id=self.run, device=self.name)
        self.transport.publish(topics.up("default", self.job, self.name), sealed)

    def decline(self, task: Assignment) -> None:
        self.say(frame(DeclinedMessage(job=task.job, round=task.round, reason="a puppet")))


class Named(Protocol):
    """Whoever may answer."""

    name: str


def answer(puppet: Named, task: Assignment, arrays: Mapping[str, Array], **other: object) -> bytes:
    """The frame of an answer; `other` replaces what it says, without any check."""
    described, parts, _ = tensors.encode(arrays, Float32())
    header = Answer(
        job=task.job,
        run_id=task.run_id,
        round=task.round,
        device=puppet.name,
        model=task.model,
        weight=10.0,
        steps=1,
        tensors=described,
    )
    return frame(header.model_copy(update=other), parts)


def noise(size: int, seed: int) -> Array:
    return (1e-3 * np.random.default_rng(seed).normal(size=size)).astype(np.float32)
