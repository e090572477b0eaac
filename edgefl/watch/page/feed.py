"""Where the run's thread and the server's meet: facts go in on one side, changes of the overview come out on the other.

The run's side never waits: it folds a fact and wakes the listeners. The server's side sleeps until it is woken.
Neither side polls.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from copy import copy, deepcopy
from dataclasses import replace
from threading import Lock
from typing import Any, TypeVar

from edgefl.base.events import Fact
from edgefl.base.vitals import SIGNS
from edgefl.watch.overview.overview import Overview
from edgefl.watch.overview.rows import Snapshot
from edgefl.watch.overview.snapshot import pace, plain

log = logging.getLogger(__name__)

T = TypeVar("T")

MOST = 16  # browsers that are told of changes at the same time
TURNS = 500  # answers in the story of one device


class FeedListener:
    """A task in the server's loop that is woken when there is something new."""

    def __init__(self) -> None:
        self._loop, self._rung, self._event = asyncio.get_running_loop(), False, asyncio.Event()

    def ring(self) -> None:
        """From any thread; rung for twice is rung for once."""
        if not self._rung:
            self._rung = True
            with suppress(RuntimeError):  # its loop has ended
                self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, seconds: float) -> bool:
        """Return whether it was woken within these seconds."""
        try:
            await asyncio.wait_for(self._event.wait(), seconds)
        except asyncio.TimeoutError:
            return False
        self._event.clear()
        self._rung = False
        return True


class Feed:
    """An overview that one thread tells facts and another one reads."""

    def __init__(self, overview: Overview) -> None:
        self.life = secrets.token_hex(4)  # numbers of another life mean nothing in this one
        self.closed = False
        self._overview, self._lock = overview, Lock()
        self._listeners: set[FeedListener] = set()

    def tell(self, fact: Fact) -> None:
        """Take it in. A run does not end because something is wrong with how it is shown."""
        try:
            with self._lock:
                self._overview.tell(fact)
        except Exception:
            log.exception("the page does not show a fact: %s", type(fact).__name__)
        for listener in tuple(self._listeners):
            listener.ring()

    def replace(self, overview: Overview) -> None:
        """Another overview, of another story."""
        with self._lock:
            self._overview, self.life = overview, secrets.token_hex(4)
        for listener in tuple(self._listeners):
            listener.ring()

    def changes(self, mark: str = "") -> dict[str, Any]:
        """What is different since the mark that came with an earlier answer; everything, if it is not of this life.

        `now` is the time here: a browser's clock may be another one. How vital signs are shown comes with everything.
        """
        life, _, number = mark.partition("-")
        since = int(number) if life == self.life and number.isdecimal() and len(number) < 16 else 0
        with self._lock:
            snapshot = _still(self._overview.changes(since))
        about = {"mark": self._mark(snapshot.sequence), "whole": since == 0, "now": time.time()}
        signs = {} if since else {"signs": plain(SIGNS)}
        return {**plain(snapshot), **about, **signs}

    def look(self, take: Callable[[Overview], T]) -> T:
        """Read something from the overview under its lock."""
        with self._lock:
            return take(self._overview)

    def newer(self, mark: str) -> bool:
        """Whether there is anything to tell to whom knows this."""
        return mark != self._mark(self._overview.sequence)

    def device(self, name: str) -> dict[str, Any] | None:
        """The story of one device, and its last answers."""
        with self._lock:
            row = copy(self._overview.devices.get(name))
            story, turns = self._overview.story(name), self._overview.turns.of(name, TURNS)
        return None if row is None else {"device": plain(row), "story": plain(story), "turns": plain(turns)}

    def slow(self, since: float | None, until: float | None) -> dict[str, Any]:
        """Who was slow in this span of time."""
        past = Overview()  # a copy of what is needed: to look through many answers takes a second
        with self._lock:
            past.turns, past.rounds = deepcopy(self._overview.turns), dict(self._overview.rounds)
        return {"devices": [pace(one) for one in past.slow(since, until)]}

    def listen(self) -> FeedListener | None:
        """A new listener; None if there are too many already."""
        if self.closed or len(self._listeners) >= MOST:
            return None
        listener = FeedListener()
        self._listeners.add(listener)
        return listener

    @property
    def watched(self) -> bool:
        """Whether a browser listens."""
        return bool(self._listeners)

    def leave(self, listener: FeedListener) -> None:
        self._listeners.discard(listener)

    def close(self) -> None:
        """Tell all listeners that nothing comes any more."""
        self.closed = True
        for listener in tuple(self._listeners):
            listener.ring()

    def _mark(self, sequence: int) -> str:
        return f"{self.life}-{sequence}"


def _still(snapshot: Snapshot) -> Snapshot:
    """Return a copy that later facts do not reach: the run does not wait while JSON is made of it."""
    devices, notes = [copy(row) for row in snapshot.devices], [copy(note) for note in snapshot.notes]
    here = snapshot.open
    if here:
        here = replace(here, asked=[*here.asked], answered=[*here.answered], awaited=[*here.awaited])
        here.declined = dict(here.declined)
    return replace(snapshot, run=copy(snapshot.run), open=here, devices=devices, notes=notes)
