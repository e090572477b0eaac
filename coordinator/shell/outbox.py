"""What the coordinator says, and to whom."""

from collections.abc import Iterable
from typing import Literal

from coordinator.decide import vocabulary
from coordinator.durable.journal import Journal
from edgefl.wire import calls, chunks, reconnect, topics
from edgefl.wire.calls import Callee
from edgefl.wire.messages import TEXT, Assignment, JobState, Receipt, ToDevice, frame
from edgefl.wire.signed import LIFE, Speaker, life_number
from edgefl.wire.signing import Signer
from edgefl.wire.transport import Transport

Verdict = Literal["accepted", "duplicate", "late", "refused"]

FINISHED_EXPIRES = 24 * 3600  # seconds: until then a device that was away learns that its update is not waited for


def start_number(journal: Journal | None, now: int) -> int:
    """A number for this start of the coordinator, larger than that of every start before.

    It is the time, so that devices can also tell which of two runs is the older one.
    """
    if journal is None:
        return life_number(now)
    number = life_number(now, int(journal.get("start") or 0))
    journal.set(start=str(number))
    return number


class CoordinatorOutbox:
    """Speaks for one run of a job. Everything is signed, with a counter that begins with the number of this start."""

    def __init__(
        self, transport: Transport, fleet: str, job: str, run_id: str, *, signer: Signer, start: int = 1
    ) -> None:
        self.transport, self.fleet, self.job, self.run_id = transport, fleet, job, run_id
        self.speaker = Speaker(signer, fleet, start)
        self.calls = start << LIFE  # the number of the last one: no other start has used it

    def listen(self) -> None:
        """Hear of every device's presence, of every site's, and everything said to this job."""
        here = topics.presence(self.fleet, "+"), topics.site(self.fleet, "+")
        self.transport.subscribe(*here, topics.up(self.fleet, self.job, "+"))

    def listen_again(self) -> None:
        """Ask the broker once more for all retained presences."""
        self.transport.subscribe(topics.presence(self.fleet, "+"))

    def state(self, phase: vocabulary.RunPhase, round: int, devices: int) -> None:
        """Publish where the job stands, retained; that it has finished, for a day."""
        job_state = JobState(
            job=self.job, run_id=self.run_id, phase=phase, round=round, spread=reconnect.spread(devices)
        )
        expires = FINISHED_EXPIRES if phase == "finished" else None
        topic = topics.state(self.fleet, self.job)
        sealed = self.speaker.seal("state", job_state.model_dump_json().encode(), job=self.job, run_id=self.run_id)
        self.transport.publish(topic, sealed, retain=True, expires=expires)

    def verdict(
        self, action: vocabulary.Confirm | vocabulary.AcceptLate | vocabulary.Ignore | vocabulary.Refuse
    ) -> None:
        """Tell a device what became of its answer."""
        about = action.device, action.round, action.digest
        match action:
            case vocabulary.Confirm():
                self.receipt(*about, "accepted")
            case vocabulary.AcceptLate():
                self.receipt(*about, "accepted", "late, kept by policy")
            case vocabulary.Ignore(reason="duplicate" | "late" as reason):
                self.receipt(*about, reason, reason)
            case vocabulary.Ignore(reason=reason) | vocabulary.Refuse(reason=reason):
                self.receipt(*about, "refused", reason)

    def receipt(self, device: str, round: int, digest: bytes, verdict: Verdict, reason: str = "") -> None:
        """An answer is safe with us, or is not wanted."""
        self.say(device, Receipt(job=self.job, round=round, digest=digest, verdict=verdict, reason=reason[:TEXT]))

    def call(self, task: Assignment, callees: Iterable[Callee], manifest: bytes, model: bytes) -> None:
        """One message to all these devices, signed once."""
        self.calls += 1
        call = calls.call(self.fleet, task, self.calls, callees, manifest)
        data = frame(call, (model,) if manifest else ())
        digest, together = chunks.digest(data), chunks.together(self.transport.largest())
        messages = (chunks.parts(data, digest, at, together) for at in range(0, chunks.count(len(data)), together))
        for sealed in self.speaker.seal_frame(messages, job=self.job, run_id=self.run_id, kind="round"):
            self.transport.publish(topics.round(self.fleet, self.job), sealed)

    def say(self, device: str, message: ToDevice) -> None:
        """One message to one device."""
        data = frame(message)
        for part in chunks.split(data, chunks.digest(data)):
            sealed = self.speaker.seal("down", part, job=self.job, run_id=self.run_id, device=device)
            self.transport.publish(topics.down(self.fleet, self.job, device), sealed)

    def clear_presence(self, device: str) -> None:
        """The broker no longer says that this device is there."""
        self.transport.publish(topics.presence(self.fleet, device), b"", retain=True)
