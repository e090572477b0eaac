"""What each action of the core means: one action, one case. Nothing is decided here, and nothing waits.

What is slow goes to the background, and what follows at once goes back into the core as an event.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from coordinator.decide import vocabulary
from edgefl.base.errors import WireError
from edgefl.wire.messages import TEXT, Refusal, Renewed

if TYPE_CHECKING:
    from coordinator.shell.service import Coordinator


def perform(here: "Coordinator", action: vocabulary.Action) -> None:  # noqa: PLR0912, PLR0915, C901  one action, one case
    """Do it."""
    match action:
        case vocabulary.Listen():
            here.outbox.listen()
            here.retained_cleanup.search()
        case vocabulary.ListenAgain():
            here.outbox.listen_again()
        case vocabulary.SayState(phase, round, fleet):
            here.outbox.state(phase, round, fleet)
        case vocabulary.Prepare():
            known = here.state.rounds if here.state.resumed else None
            here.background.start(here.preparing(known, here.artifacts.opener))
        case vocabulary.Publish(in_use):
            here.retained_cleanup.clear(here.artifacts.publish(in_use))
        case vocabulary.PublishAgain() if here.artifacts.publisher:
            here.artifacts.publisher.again()
        case vocabulary.Meet(device):
            here.inbound.meet(device)
        case vocabulary.Ask():
            here.invitations.ask(action)
        case vocabulary.Open(digest=digest):
            here.feed(here.artifacts.look_into(digest, here.clock.now()))
        case vocabulary.Accept(digest=digest):
            here.artifacts.keep(digest)
        case vocabulary.AcceptLate(digest=digest):
            here.artifacts.keep(digest)
            here.outbox.verdict(action)
        case vocabulary.Confirm():
            here.outbox.verdict(action)
        case vocabulary.Ignore() | vocabulary.Refuse():
            here.artifacts.answers.put_away(action.digest)
            _affordable(here, action.device, lambda now: _unwanted(here, action, now))
        case vocabulary.RequestMissing(device, digest, size):
            _affordable(here, device, lambda now: here.inbox.ask_for(device, digest, size, now))
        case vocabulary.TurnAway(device, code, reason, installation, key):
            here.outbox.say(device, Refusal(code=code, reason=reason[:TEXT], installation=installation, key=key))
        case vocabulary.Dismiss(device):
            here.inbound.dismiss(device)
            here.outbox.clear_presence(device)
        case vocabulary.Certify(device, request) if here.renewals:
            here.background.start(here.renewals.work(device, request, here.clock.now()))
        case vocabulary.SendCertificate(device, certificate):
            here.outbox.say(device, Renewed(certificate=certificate))
        case vocabulary.Merge():
            policy, journal = here.state.rounds.rules.late, here.journal
            disk, journaled = (journal.disk, not journal.full) if journal else (None, False)
            here.background.start(here.artifacts.merge(action, policy, disk, here.clock, journaled=journaled))
        case vocabulary.DropAnswers(digests):
            here.artifacts.answers.drop(*digests)
        case vocabulary.Tell(facts):
            here.say(*(replace(fact, at=fact.at or here.clock.wall()) for fact in facts))
        case vocabulary.ClearModels() if here.artifacts.publisher:
            here.artifacts.publisher.clear()
        case vocabulary.ClearLeftovers():
            here.retained_cleanup.clear(())
        case vocabulary.Leave(finished):
            over = finished and not here.error
            done = (replace(here.artifacts.summary(action), at=here.clock.wall()),) if over else ()
            here.unwritten.extend(done)
            here.close()
            here.say(*done)


def _unwanted(here: "Coordinator", action: vocabulary.Ignore | vocabulary.Refuse, now: float) -> None:
    if isinstance(action, vocabulary.Ignore):
        here.inbox.count(action.device, now)  # an answer that counts costs the device nothing
    here.outbox.verdict(action)


def _affordable(here: "Coordinator", device: str, reply: Callable[[float], None]) -> None:
    """Reply, unless that is more than the device may ask of us; then it is held against it."""
    now = here.clock.now()
    try:
        reply(now)
    except WireError as error:
        here.feed(here.inbound.misbehaved(device, error, now))
