"""Questions of the fleet's operator: decided in `decide/questions.py`, answered here, and each of them logged.

An answer goes out as one message, of at most 64 KB. No text in it holds values of the data: the lines of the log are
those that are marked (`edgefl.system.logs`), the examination reads no data, and of the data stands there what the
presence of this device says of them.
"""

import logging
from collections.abc import Callable

from device_agent.decide import questions
from device_agent.decide.questions import AnswerQuestion, ExamineMachine, PassOverQuestion, Questions, RefuseQuestion
from device_agent.shell.outbox import AgentOutbox
from device_agent.shell.presence import Attendance
from device_agent.shell.setup import Diagnosed, RemoteAnswers
from edgefl.base.errors import IN_THE_LOG
from edgefl.system.background import Put
from edgefl.system.clock import Clock
from edgefl.system.logs import TOLD
from edgefl.wire.messages import LABEL, LINE, MOST_LINES, REPLY, DeviceRequest, Examined, Reply, WireVitals, frame_size

log = logging.getLogger(__name__)

HIDDEN = {"memory", "disk"}  # findings that tell how the machine fares


class Diagnosis:
    """One device's answers."""

    def __init__(
        self,
        remote: RemoteAnswers,
        outbox: AgentOutbox,
        attendance: Attendance,
        *,
        clock: Clock,
        put: Put,
        machine: Callable[[], WireVitals] | None,
    ) -> None:
        self.remote, self.outbox, self.attendance, self.put = remote, outbox, attendance, put
        self.clock, self.machine = clock, machine
        self.questions = Questions(remote.allowed, hides=attendance.hides)
        self.examined_for = ""  # the id of the question that waits for an examination

    def asked(self, request: DeviceRequest, key: str | None) -> None:
        """Answer a question that was signed with the coordinator's key; None: this device knows no coordinator."""
        about = request.id, request.what
        self.questions, verdict = questions.asked(self.questions, *about, self.clock.now(), trusts=key is not None)
        if isinstance(verdict, PassOverQuestion):
            log.debug("passed over a question id=%s", request.id)
            return
        outcome = f"refused: {verdict.reason}" if isinstance(verdict, RefuseQuestion) else "answered"
        log.info(
            "question what=%s by=%r key=%s id=%s %s",
            request.what,
            request.by,
            key,
            request.id,
            outcome,
            extra=TOLD,
        )
        match verdict:
            case RefuseQuestion(reason):
                self._say(Reply(id=request.id, refused=reason))
            case AnswerQuestion():
                self._say(self._at_hand(request))
            case ExamineMachine() if self.remote.examine is None:
                self._ended(Diagnosed(failure="nothing can be examined here"), request.id)
            case ExamineMachine():
                self.examined_for = request.id
                self.remote.examine(self.put)

    def ended(self, event: Diagnosed) -> None:
        """An examination has ended."""
        self._ended(event, self.examined_for)

    def _ended(self, event: Diagnosed, id: str) -> None:
        self.questions = questions.examined(self.questions)
        if event.failure:
            log.warning("the examination failed why=%s", event.failure)
            self._say(Reply(id=id, refused=f"the examination failed: {IN_THE_LOG}"))
            return
        shown = [one for one in event.findings if not (self.attendance.hides and one.what in HIDDEN)]
        connected = Examined(what="broker", level="ok", text="connected: the question came over it")
        self._say(Reply(id=id, findings=(*shown, connected, self._data())))

    def _at_hand(self, request: DeviceRequest) -> Reply:
        if request.what == "logs":
            return bounded(Reply(id=request.id, lines=tuple(line[:LINE] for line in self.remote.lines())[-MOST_LINES:]))
        if self.machine is None:
            return Reply(id=request.id, refused="this agent cannot read the vital signs of its machine")
        return Reply(id=request.id, vitals=self.machine())

    def _data(self) -> Examined:
        """What the presence says of the data, and nothing else."""
        trouble, samples = self.attendance.trouble[:LABEL], self.attendance.announced
        if not trouble:
            return Examined(what="data", level="ok", text=f"{samples} samples")
        remedy = "`edgefl doctor` with its agent file, on the device, says more"
        level, text = ("warning", f"trains on {samples} older samples: {trouble}") if samples else ("wrong", trouble)
        return Examined.model_validate({"what": "data", "level": level, "text": text, "remedy": remedy})

    def _say(self, reply: Reply) -> None:
        self.outbox.reply(reply)


def bounded(reply: Reply) -> Reply:
    """Return the reply with as many of its last lines as fit."""
    while reply.lines and frame_size(reply) > REPLY:
        reply = reply.model_copy(update={"lines": reply.lines[1 + len(reply.lines) // 8 :]})
    return reply
