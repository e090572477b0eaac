"""What the coordinator says, and to whom."""

from typing import Literal

from edgefl.protocol import chunks, pace, topics
from edgefl.protocol.messages import TEXT, Assignment, JobState, Missing, Receipt, Refusal, frame
from edgefl.protocol.transport import Transport

Verdict = Literal["accepted", "duplicate", "late", "refused"]
Phase = Literal["gathering", "training", "finished"]

FINISHED_EXPIRES = 24 * 3600  # seconds: until then a device that was away learns that nobody waits for its update


class Voice:
    """Speaks for one life of a job."""

    def __init__(self, transport: Transport, fleet: str, job: str, run: str) -> None:
        self.transport, self.fleet, self.job, self.run = transport, fleet, job, run

    def listen(self) -> None:
        """Hear of every device's presence, and everything said to this job."""
        self.transport.subscribe(topics.presence(self.fleet, "+"), topics.up(self.fleet, self.job, "+"))

    def state(self, phase: Phase, round: int, devices: int) -> None:
        """Where the job stands, for everybody and for whoever comes later; that it has finished, for a day."""
        said = JobState(job=self.job, run=self.run, phase=phase, round=round, spread=pace.spread(devices))
        expires = FINISHED_EXPIRES if phase == "finished" else None
        topic = topics.state(self.fleet, self.job)
        self.transport.publish(topic, said.model_dump_json().encode(), retain=True, expires=expires)

    def receipt(self, device: str, round: int, digest: bytes, verdict: Verdict, reason: str = "") -> None:
        """An answer is safe with us, or is not wanted."""
        self.say(device, Receipt(job=self.job, round=round, digest=digest, verdict=verdict, reason=reason[:TEXT]))

    def say(self, device: str, message: Assignment | Receipt | Refusal | Missing) -> None:
        """One message to one device."""
        data = frame(message)
        for part in chunks.split(data, chunks.digest(data)):
            self.transport.publish(topics.down(self.fleet, self.job, device), part)
