"""An answer that costs much processor time: made one at a time, kept for a while, and never for most of the time.

The page shares its interpreter with the run. To look through 200,000 answers of devices takes more than half a second
of it, and a visitor may ask again and again.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from starlette.concurrency import run_in_threadpool

REST = 4  # an answer that took a second is followed by four seconds without one: a fifth of the time
WAITING = 4  # requests that wait for their turn; others are sent away
KEPT = 8  # answers that are kept, each for as long as the rest after it

Question = TypeVar("Question")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class _CachedAnswer(Generic[Answer]):
    answer: Answer
    until: float


class CachedAnswers(Generic[Question, Answer]):
    """Asks `make` for an answer where none is kept; used in one event loop."""

    def __init__(
        self,
        make: Callable[[Question], Answer],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._make, self._clock, self._sleep = make, clock, sleep
        self._turn = asyncio.Lock()
        self._kept: dict[Question, _CachedAnswer[Answer]] = {}
        self._waiting, self._free_at = 0, 0.0

    async def ask(self, question: Question) -> Answer | None:
        """Return the answer, perhaps one of a moment ago; None if too many wait already."""
        if (kept := self._kept.get(question)) and self._clock() < kept.until:
            return kept.answer
        if self._waiting >= WAITING:
            return None
        self._waiting += 1
        try:
            async with self._turn:
                return await self._made(question)
        finally:
            self._waiting -= 1

    async def _made(self, question: Question) -> Answer:
        if (kept := self._kept.get(question)) and self._clock() < kept.until:  # made while this one waited
            return kept.answer
        if (rest := self._free_at - self._clock()) > 0:
            await self._sleep(rest)
        began = self._clock()
        answer = await run_in_threadpool(self._make, question)
        now = self._clock()
        self._free_at = now + REST * (now - began)
        self._kept.pop(question, None)
        self._kept[question] = _CachedAnswer(answer, self._free_at)
        if len(self._kept) > KEPT:
            del self._kept[next(iter(self._kept))]
        return answer
