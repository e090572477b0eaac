"""What this device hears: what its coordinator signed for it, and has not said before.

Whose word counts is the business of `trust.py`, and what is new that of `replay.py`. The first key that signs a task
is the one that is trusted, where none was given; until then states of any sender are heard, because nothing depends on
them yet.
"""

from collections.abc import Callable
from typing import TypeAlias

from device_agent.durable.replay import Replays
from device_agent.durable.trust import Trust
from edgefl.base.errors import WireError
from edgefl.wire import calls, chunks, signed, topics
from edgefl.wire.messages import (
    CALL,
    CALLED,
    SMALL,
    TO_DEVICE,
    Assignment,
    DeviceRequest,
    JobState,
    Receipt,
    Renew,
    ToDevice,
    read,
    read_json,
)
from edgefl.wire.signed import Envelope, SigningContext

Series: TypeAlias = tuple[str, str, int, bytes, bytes | None]  # key, run, counter, signature, what its chunks share


class UntrustedTask(WireError):  # noqa: N818 - who it is
    """A task with a valid signature, by a key that this device does not trust."""

    def __init__(self, task: Assignment, run_id: str, key: str, trust: Trust) -> None:
        trusted = trust.key
        told = (
            f"signed by {key}, but this device trusts {trusted}: if that is the coordinator's new key, tell it to the"
            " device (its log says where)"
        )
        super().__init__("message.key", trust.why(key), told=told)
        self.task, self.run_id, self.key = task, run_id, key


class AgentInbound:
    """Opens what comes from a coordinator; whatever is not its own or not new is a WireError."""

    def __init__(self, fleet: str, device: str, installation: str, trust: Trust, replays: Replays) -> None:
        self.fleet, self.device, self.installation = fleet, device, installation
        self.trust, self.replays = trust, replays
        self.assembler = chunks.Assembler(SMALL)  # nothing that is said to one device has a body
        self.calls = chunks.Assembler(SMALL + CALLED)
        self.series: Series | None = None  # of the call that is coming in

    def message(self, job: str, payload: bytes | memoryview) -> ToDevice | None:
        """What is said to this device, once all of it has come."""
        envelope = signed.opened(payload)
        envelope.prove(SigningContext("down", self.fleet, job, envelope.run_id, self.device))
        if not self.trust.trusts(envelope.key):
            self._turn_down(envelope, _task_in)
        if self.trust.key is not None:
            self.replays.new_message(envelope.key, envelope.run_id, envelope.counter)
        whole = self.assembler.add(envelope.payload)
        if whole is None:
            return None
        message = read(TO_DEVICE, whole[1], limit=0)[0]
        if isinstance(message, Assignment | Receipt | Renew) and message.job != job:
            raise WireError("wire.malformed", f"job '{message.job}' spoke on the topic of job '{job}'")
        if isinstance(message, DeviceRequest) and (job, envelope.run_id) != (topics.SERVER, topics.DIAGNOSIS):
            raise WireError("wire.malformed", f"run '{envelope.run_id}' of job '{job}' asks what operators ask")
        if isinstance(message, Assignment | Renew) and message.run_id != envelope.run_id:
            raise WireError("wire.malformed", f"run '{message.run_id}' spoke as run '{envelope.run_id}'")
        if isinstance(message, Assignment) and self.trust.key is None:
            self.trust.pin(envelope.key)
            self.replays.new_message(envelope.key, envelope.run_id, envelope.counter)
        return message

    def call(self, job: str, payload: bytes | memoryview) -> Assignment | None:
        """The task of this device, if it is among those who are called, once all of the call has come."""
        envelope = signed.opened(payload)
        common = chunks.series(envelope.payload)
        series = envelope.key, envelope.run_id, envelope.counter, envelope.signature, common
        if common is None or series != self.series:  # of a frame in many chunks one signature serves all
            envelope.prove(SigningContext("round", self.fleet, job, envelope.run_id))
            if not self.trust.trusts(envelope.key):
                self._turn_down(envelope, lambda data: self._own_task(job, envelope, data))
            if self.trust.key is not None:
                self.replays.new_message(envelope.key, envelope.run_id, envelope.counter)
            self.series = series
        whole = self.calls.add(envelope.payload)
        if whole is None:
            return None
        self.series = None  # what comes again is old
        task = self._own_task(job, envelope, whole[1])
        if task is not None and self.trust.key is None:
            self.trust.pin(envelope.key)
            self.replays.new_message(envelope.key, envelope.run_id, envelope.counter)
        return task

    def _own_task(self, job: str, envelope: Envelope, data: bytes | bytearray) -> Assignment | None:
        call, frame = read(CALL, data, limit=CALLED)
        if (call.task.job, call.task.run_id) != (job, envelope.run_id):
            raise WireError("wire.malformed", f"run '{call.task.run_id}' of job '{call.task.job}' spoke as '{job}'")
        return calls.own_task(self.fleet, call, self.device, self.installation, frame.body)

    def state(self, job: str, payload: bytes | memoryview) -> JobState:
        """Where a job stands."""
        envelope = signed.opened(payload)
        envelope.prove(SigningContext("state", self.fleet, job, envelope.run_id))
        if not self.trust.trusts(envelope.key):
            raise WireError("message.key", self.trust.why(envelope.key))
        state = read_json(JobState, envelope.payload)
        if (state.job, state.run_id) != (job, envelope.run_id):
            raise WireError("wire.malformed", f"run '{state.run_id}' of job '{state.job}' spoke as '{job}'")
        if self.trust.key is not None:
            finished = state.phase == "finished"
            self.replays.new_state(envelope.key, envelope.run_id, envelope.counter, finished=finished)
        return state

    def _turn_down(self, envelope: Envelope, task_in: Callable[[bytes | bytearray], Assignment | None]) -> None:
        """Drop a message of a foreign coordinator; decline it if it is a task."""
        whole = chunks.Assembler(self.calls.limit).add(envelope.payload)
        task = task_in(whole[1]) if whole else None
        if task is not None and task.run_id == envelope.run_id:
            raise UntrustedTask(task, envelope.run_id, envelope.key, self.trust)
        raise WireError("message.key", self.trust.why(envelope.key))


def _task_in(data: bytes | bytearray) -> Assignment | None:
    message = read(TO_DEVICE, data, limit=0)[0]
    return message if isinstance(message, Assignment) else None
