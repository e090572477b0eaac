"""Wait for a broker that is not there yet: at boot, or because a person starts the coordinator first.

What waiting cannot mend ends the start with one line: a wrong address, certificate or password.
"""

import time
from collections.abc import Callable

from edgefl.job.config.schema import RunFile
from edgefl.wire.address import BrokerAway, parse, reachable
from edgefl.wire.opening import admitted

FIRST, LONGEST = 0.5, 5.0  # seconds between two attempts; each is twice the one before
REMIND = 600.0  # seconds until the same reason is told again


def check_broker(run: RunFile) -> None:
    """Raise `BrokerAway` while the broker does not answer, and ConfigError if it refuses this coordinator.

    A broker that the run brings itself (`embedded`) comes later.
    """
    address = parse(run.broker.url)
    if not address.embedded:
        reachable(address)
        admitted(address, run.broker.tls)


def wait_for_broker(
    run: RunFile,
    say: Callable[[str], None],
    *,
    check: Callable[[RunFile], None] = check_broker,
    sleep: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> None:
    """Return when the broker lets the coordinator in; say why it does not yet, at once and then now and then."""
    pause, last_line, remind_at = FIRST, "", 0.0
    while why := _why_away(run, check):
        if why != last_line or now() >= remind_at:
            say(f"waiting for the broker, Ctrl-C ends it: {why}")
            last_line, remind_at = why, now() + REMIND
        sleep(pause)
        pause = min(LONGEST, 2 * pause)
    if last_line:
        say(f"the broker is there: {parse(run.broker.url)}")


def _why_away(run: RunFile, check: Callable[[RunFile], None]) -> str:
    """Return why the broker does not answer; "" if it does."""
    try:
        check(run)
    except BrokerAway as away:
        return str(away)
    return ""
