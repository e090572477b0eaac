"""What the device says to its coordinators, signed, and how much of it is on its way."""

from collections import deque
from collections.abc import Iterable

from device_agent.durable.spool import SpooledUpdate
from edgefl.wire import chunks, topics
from edgefl.wire.messages import Absent, BusyMessage, DeclinedMessage, Holding, Presence, Renewal, Reply, Working, frame
from edgefl.wire.signed import Speaker
from edgefl.wire.transport import Payload, Transport

KEPT = 32  # presences of its own that it remembers


class AgentOutbox:
    """One device's messages; everything small goes in one chunk, an update in as many as it needs."""

    def __init__(self, transport: Transport, fleet: str, device: str, speaker: Speaker) -> None:
        self._transport, self._fleet, self._device, self.speaker = transport, fleet, device, speaker
        self.published = self._queued = 0  # messages so far; those up to the last chunk of an update
        self.announced = b""  # what should stand at the broker about this device
        self.presences: deque[bytes] = deque(maxlen=KEPT)  # what it said of itself in this life

    def announce(self, here: Presence) -> None:
        """Stands at the broker until something else is said."""
        self.announced = self.presence(here)
        self._publish(topics.presence(self._fleet, self._device), self.announced, retain=True)

    def presence(self, presence: Presence) -> bytes:
        """Signed; a last will long before it is said."""
        self.presences.append(self.speaker.seal("presence", presence.model_dump_json().encode(), device=self._device))
        return self.presences[-1]

    def say(self, run_id: str, message: DeclinedMessage | BusyMessage | Working | Absent | Holding | Renewal) -> None:
        data = frame(message)
        for part in chunks.split(data, chunks.digest(data)):
            self._up(message.job, run_id, part)

    def reply(self, message: Reply) -> None:
        """Answer a question of the fleet's operator."""
        data = frame(message)
        for part in chunks.split(data, chunks.digest(data)):
            self._up(topics.SERVER, topics.DIAGNOSIS, part)

    def offer(self, held: SpooledUpdate) -> None:
        """Ask what is missing of it."""
        about = Holding(job=held.job, run_id=held.run_id, round=held.round, digest=held.digest, size=len(held.frame))
        self.say(held.run_id, about)

    def send(self, held: SpooledUpdate, indexes: Iterable[int] | None = None) -> None:
        """These chunks of an update, each once, however often it is asked for; all of them if none are named."""
        count = chunks.count(len(held.frame))
        selected = range(count) if indexes is None else [index for index in dict.fromkeys(indexes) if index < count]
        runs = chunks.runs(selected, chunks.together(self._transport.largest()))
        parts = (chunks.parts(held.frame, held.digest, *run) for run in runs)
        for sealed in self.speaker.seal_frame(parts, job=held.job, run_id=held.run_id, device=self._device):
            self._publish(topics.up(self._fleet, held.job, self._device), sealed)
        self._queued = self.published

    def sending(self) -> bool:
        """Whether some of the update that was sent last is still on its way to the broker."""
        return self.published - self._transport.backlog() < self._queued

    def _up(self, job: str, run_id: str, part: bytes) -> None:
        sealed = self.speaker.seal("up", part, job=job, run_id=run_id, device=self._device)
        self._publish(topics.up(self._fleet, job, self._device), sealed)

    def _publish(self, topic: str, payload: Payload, *, retain: bool = False) -> None:
        self.published += 1
        self._transport.publish(topic, payload, retain=retain)
