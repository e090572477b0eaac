"""An agent that may be asked how it is, in memory, and who asks it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from idle_agents import Stopped, idle_agent

from coordinator.shell.device_keys import DeviceKeys
from device_agent.shell.service import Agent
from device_agent.shell.setup import Diagnosed, Hooks, RemoteAnswers, Scope
from edgefl.job.config.remote import QUESTIONS
from edgefl.ops.diagnosis import Asker, Lives, Question, ReplyHeard
from edgefl.system.background import Put
from edgefl.system.disk import Disk
from edgefl.wire import topics
from edgefl.wire.messages import Examined, Reply, WireVitals
from edgefl.wire.signing import Signer
from edgefl.wire.transport import ConnectionMade, Message

DEVICE, FLEET = "pi", "default"
FINDINGS = (
    Examined(what="memory", level="warning", text="200 of 900 MB free", remedy="add swap"),
    Examined(what="clock", level="ok", text="2026-11-19 12:00 UTC"),
)


@dataclass
class Examiner:
    """An examination that ends when a test says so."""

    puts: list[Put] = field(default_factory=list)

    def __call__(self, put: Put) -> None:
        self.puts.append(put)


class Asked:
    """The device, its operator, and what is said between them."""

    def __init__(
        self, folder: Path, disk: Disk | None = None, *, allow: tuple[str, ...] = QUESTIONS, **about: Any
    ) -> None:
        self.signer, self.examiner, self.clock = Signer.new(), Examiner(), Stopped()
        self.lines: list[str] = ["12:00 connected", "12:01 asked"]
        remote = RemoteAnswers(allow, lambda: self.lines, self.examiner)
        self.about = {"scope": Scope(coordinator=self.signer.key), **about}
        self.hooks = Hooks(remote=remote, machine=lambda: WireVitals(load=0.5))
        self.disk: Disk | Path = disk or folder / "device"
        self.asker = Asker(FLEET, self.signer, DeviceKeys(), Lives(folder / "default.questions", self.clock.wall))
        self.agent = self.started()

    def started(self) -> Agent:
        """The agent, connected; what it says stays in its outbox."""
        agent = idle_agent(self.disk, clock=self.clock, hooks=self.hooks, **self.about)
        agent.handle(ConnectionMade())
        self.sent(agent)
        return agent

    def sent(self, agent: Agent | None = None) -> list[Message]:
        """What it said to its operator since."""
        outbox = (agent or self.agent).transport.outbox
        messages = [Message(topic, payload) for topic, payload, *_ in outbox]
        outbox.clear()
        return [one for one in messages if topics.parts(one.topic)[0] == topics.SERVER]

    def ask(self, what: str, by: str = "anna on base") -> Question:
        question = self.asker.question(DEVICE, what, by)
        self.agent.handle(Message(*self.asker.message(question)))
        return question

    def replies(self) -> list[Reply]:
        """The answers that the operator believes."""
        news = (self.asker.heard(message) for message in self.sent())
        return [one.reply for one in news if isinstance(one, ReplyHeard)]

    def answer(self, what: str) -> Reply:
        """The one answer to this question."""
        self.ask(what)
        if self.examiner.puts:
            self.agent.handle(Diagnosed(FINDINGS))
            self.examiner.puts.clear()
        (reply,) = self.replies()
        return reply


Forge = Callable[[Asked, bytes], tuple[str, bytes]]
