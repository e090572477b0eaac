"""How often each address may come: a token bucket, of which one number is kept (the generic cell rate algorithm)."""

BURST = 40  # at once: a browser that loads the form needs twelve,
PER_SECOND = 10  # and then this number in a second
DEBT = 1.0  # seconds that one waits at most: others behind the same address are not shut out
ADDRESSES = 4096  # that are remembered


class Rate:
    """Counts what each address takes of its bucket."""

    def __init__(self) -> None:
        self._full_at: dict[str, float] = {}  # when the bucket of each address is full again

    def take(self, address: str, now: float) -> float:
        """Take one out of the bucket; return for how many seconds it has to be waited for."""
        full_at = max(self._full_at.pop(address, now), now)
        seconds = max(0.0, full_at - now - (BURST - 0.5) / PER_SECOND)  # half of one against rounding
        full_at = min(full_at + 1 / PER_SECOND, now + BURST / PER_SECOND + DEBT)
        if len(self._full_at) >= ADDRESSES:
            self._full_at = {other: at for other, at in self._full_at.items() if at > now}
        if len(self._full_at) >= ADDRESSES:
            del self._full_at[next(iter(self._full_at))]
        self._full_at[address] = full_at
        return seconds
