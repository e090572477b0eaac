"""How much work a device is given: what it can finish before the deadline, at the pace it last showed."""

from edgefl.learn.contract import Budget

SHARE = 0.8  # of the deadline; the rest is for the network
MOST = 2**31  # batches: a pace is a device's own word, and may be as good as none


def budget(seconds_per_step: float | None, deadline: float) -> Budget:
    """The device's budget: never fewer than one batch, and the clock as a last resort."""
    seconds = SHARE * deadline
    if not seconds_per_step:
        return Budget(seconds=seconds)
    return Budget(batches=max(1, int(min(seconds / seconds_per_step, MOST))), seconds=seconds)
