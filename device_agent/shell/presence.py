"""Being there: what this device says of itself, what stands at the broker about it, and when it rests.

It announces itself, again when the broker does not say so (the word was lost) or when an old last will comes behind it,
and later when a coordinator refuses it. A device that rests is offline for a while: then no coordinator asks it in
vain. A device that has no usable data rests as well, and says why; one that trains on older samples is there, and says
so. A device with an allowance `hides`: it says each of these in one constant text, and nothing of data that do not fit
a task, which would tell their labels.
"""

import logging
import socket
from collections.abc import Callable
from logging import DEBUG, WARNING

from device_agent.durable.birth_number import Birth
from device_agent.shell import board, duplicate_identity
from device_agent.shell.duplicate_identity import DuplicateIdentity
from device_agent.shell.outbox import AgentOutbox
from device_agent.shell.samples import Samples
from device_agent.shell.setup import DeviceIdentity, Hooks
from edgefl.base.errors import WireError
from edgefl.base.version import __version__
from edgefl.system.clock import Clock
from edgefl.system.logs import TOLD
from edgefl.wire import signed
from edgefl.wire.messages import LABEL, Presence, WireVitals, read_json
from edgefl.wire.reconnect import Pause
from edgefl.wire.signed import SigningContext
from edgefl.wire.transport import Message

log = logging.getLogger(__name__)

AGAIN = 1.0  # seconds before it announces itself again at once; sooner than that it waits
VITALS = 60.0  # seconds between two looks at how the machine fares, while it works
REST = 60.0  # seconds between two looks whether it may work again
# What a device that hides how it fares tells of itself: constants, that say nothing of its data or its machine.
UNMET = "the conditions of its operator do not hold"
UNREADABLE = "its newest data cannot be read; the device's own log says more"


class Attendance:
    """One device's, in one life; `complain` logs what an operator has to do something about."""

    def __init__(
        self,
        identity: DeviceIdentity,
        birth: Birth,
        outbox: AgentOutbox,
        samples: Samples,
        *,
        clock: Clock,
        hooks: Hooks,
        complain: Callable[[str], None],
        hides: bool = False,
        moves: Callable[[], int] = lambda: 0,
    ) -> None:
        device = identity.device
        self.device, self.fleet, self.birth, self.key = device, identity.fleet, birth, outbox.speaker.key
        self.site = identity.site  # whose broker it is at
        self.outbox, self.samples, self.clock, self.complain = outbox, samples, clock, complain
        self.back_end, self.host = identity.back_end, socket.gethostname() if identity.host is None else identity.host
        self.board = board.measured() if identity.board is None else identity.board
        self.speaks_for = hooks.speaks_for  # devices behind it, of a gateway
        self.machine = hooks.machine  # how it fares, unless it is simulated
        self.moves = moves  # the number of the last addresses of the broker that it was told
        self.answers = hooks.remote is not None  # questions of the fleet's operator
        self.hides = hides  # whether others hear nothing of how its machine fares, nor of what its data hold
        self.unmet = hooks.unmet  # why it should not work now, where its operator has conditions
        self.duplicate = DuplicateIdentity(birth)
        self.announced, self.announced_at = len(samples.data), 0.0
        self.trouble = self._trouble()  # with its data, as it was announced
        self.looked_at, self.looked_for = 0.0, ""  # when its vitals were last told, and to which run while it worked
        self.rests_until: float | None = None  # when it will be looked whether it may work again
        self.pause = Pause(device)  # before it announces itself again to a coordinator that refused it
        self.unconfirmed = Pause(device)  # before it does because the broker does not say so: the word was lost

    # ---- what it says ------------------------------------------------------------------------------------------

    def announce(self) -> None:
        """It is there; or it rests."""
        now = self.announced_at = self.clock.now()
        self.announced, self.trouble, self.looked_at = len(self.samples.data), self._trouble(), now
        vitals = self.machine() if self.machine else None
        resting = self._no_data()
        if not resting and self.unmet and vitals and (why := self.unmet(vitals)):
            log.info("rests why=%s", why)
            resting = f"rests: {UNMET if self.hides else why}"
        self.rests_until = now + REST if resting and self.unmet else None
        about = {
            "vitals": None if self.hides else vitals,
            "resting": resting[:LABEL],
            "trouble": self.trouble[:LABEL],
        }
        stale = {"samples_from": self.samples.read_at} if self.trouble and self.announced else {}
        self.outbox.announce(self.presence(online=not resting).model_copy(update=about | stale))
        self.expect_echo()

    def outdated(self) -> bool:
        """Return whether something else is true of its data than was announced."""
        return (self.announced, self.trouble) != (len(self.samples.data), self._trouble())

    def announce_later(self, why: str) -> None:
        """The coordinator refused this device: log the reason and announce again with backoff."""
        self.complain(why)
        self.pause.begin(self.clock.now())

    def presence(self, *, online: bool) -> Presence:
        """What it says of itself."""
        return Presence(
            online=online,
            installation=self.birth.installation,
            birth=self.birth.number,
            host=self.host,
            version=__version__,
            samples=self.announced,
            back_end=self.back_end,
            site=self.site,
            moves=self.moves(),
            concise=True,
            arch=self.board.arch[:LABEL],
            memory_mb=self.board.memory_mb,
            answers=self.answers,
            speaks_for=self.speaks_for(),
        )

    # ---- what stands at the broker -----------------------------------------------------------------------------

    def connected(self) -> None:
        """What was expected of another connection does not come any more."""
        self.duplicate.connected()
        self.unconfirmed.confirmed()

    def expect_echo(self) -> None:
        """The broker was asked what stands there."""
        self.unconfirmed.until = None
        self.unconfirmed.begin(self.clock.now())

    def echo(self, message: Message) -> None:
        """What stands at the broker under our name must be ours: coordinators that come later read it there."""
        if message.payload == self.outbox.announced:
            self.unconfirmed.confirmed()
            return
        try:
            envelope = signed.opened(message.payload)
            envelope.prove(SigningContext("presence", self.fleet, device=self.device))
            presence = read_json(Presence, envelope.payload)
        except WireError as error:
            if message.retained:  # of the device that was there before; ours takes its place
                return
            self.announce_later(f"a message in the name of this device is not ours code={error.code} why={error}")
            raise
        ours = envelope.key == self.key
        if ours:
            self.duplicate.heard(presence, by_us=message.payload in self.outbox.presences)
        if self.duplicate.certain:
            self.complain(duplicate_identity.words(self.device, presence.host))
        if not message.retained:
            self._answer(presence, ours=ours)

    def _answer(self, presence: Presence, *, ours: bool) -> None:
        match self.birth.echo(presence, ours=ours):
            case "outdated":
                log.info("announced again birth=%d", self.birth.number, extra=TOLD)
                if self.clock.now() - self.announced_at > AGAIN:
                    self.announce()
                else:  # or an attacker who repeats our last will would have us flood the coordinator
                    self.announce_later("the last will of this device comes again while it is here")
            case "left":
                level = DEBUG if self.duplicate.certain else WARNING
                about = self.device, presence.host
                log.log(level, "announced again: another '%s' has left, host=%s", *about, extra=TOLD)
                self.announce()
            case "rival":  # both would go on at once for ever
                self.announce_later(
                    f"another device calls itself '{self.device}', host={presence.host}:"
                    " give each device its own agent.id"
                )

    # ---- time passes -------------------------------------------------------------------------------------------

    def deadlines(self) -> tuple[float | None, ...]:
        """When it wants to be woken while it is connected."""
        again = self.unconfirmed.until if self.pause.until is None else self.pause.until
        return again, self.rests_until

    def woken(self, now: float) -> None:
        """Announce what is due, and look whether a rest is over."""
        if self.pause.due(now) or (self.pause.until is None and self.unconfirmed.due(now)):
            self.announce()
        if self.rests_until is not None and now >= self.rests_until:
            if self.unfit():
                self.rests_until = now + REST
            else:
                self.announce()

    # ---- how the machine fares ---------------------------------------------------------------------------------

    def unfit(self) -> str:
        """Return why it should not work now, in words that may travel; empty if it may work."""
        why = self.unmet(self.machine()) if self.unmet and self.machine else ""
        return self._no_data() or (UNMET if why and self.hides else why)

    def _no_data(self) -> str:
        return f"no usable data: {self._trouble()}" if self.samples.missing else ""

    def _trouble(self) -> str:
        """Return why the newest data are not used, in words that may travel; empty if they are."""
        if not self.hides:
            return self.samples.trouble
        return UNREADABLE if self.samples.trouble and not self.samples.misfit else ""

    def vitals(self, run: str) -> WireVitals | None:
        """How the machine fares, if that was not told for a while, or not for the run that it works for."""
        now = self.clock.now()
        if self.machine is None or self.hides or (now - self.looked_at < VITALS and run == self.looked_for):
            return None
        self.looked_at, self.looked_for = now, run
        return self.machine()
