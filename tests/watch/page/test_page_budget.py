"""What costs much processor time is made one at a time, kept for a while, and not made most of the time."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from edgefl.watch.page import budget
from edgefl.watch.page.budget import CachedAnswers


class Work:
    """Takes two seconds of a clock that only it and its sleepers move."""

    def __init__(self) -> None:
        self.now, self.done = 0.0, list[tuple[str, float]]()
        self.budget = CachedAnswers[str, str](self.make, lambda: self.now, self.sleep)

    def make(self, question: str) -> str:
        self.done.append((question, self.now))
        self.now += 2.0
        return question.upper()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)
        self.now += seconds


async def together(work: Work, *questions: str) -> list[str | None]:
    return list(await asyncio.gather(*(work.budget.ask(one) for one in questions)))


def asked(work: Work, *questions: str) -> list[str | None]:
    """What several get who ask at once; in a thread of its own, since a browser of another test has a loop in ours."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(together(work, *questions))).result()


def test_the_same_question_is_answered_once() -> None:
    work = Work()
    assert asked(work, "a", "a", "a") == ["A", "A", "A"]
    assert work.done == [("a", 0.0)]


def test_work_of_two_seconds_is_followed_by_eight_without() -> None:
    work = Work()
    assert asked(work, "a", "b", "c") == ["A", "B", "C"]
    assert work.done == [("a", 0.0), ("b", 10.0), ("c", 20.0)]


def test_an_answer_is_made_again_when_it_is_old() -> None:
    work = Work()
    asked(work, "a")
    work.now = 9.9
    asked(work, "a")
    work.now = 10.0
    asked(work, "a")
    assert work.done == [("a", 0.0), ("a", 10.0)]


def test_those_who_come_when_too_many_wait_are_sent_away() -> None:
    work = Work()
    answers = asked(work, *"abcdefgh")
    assert answers == ["A", "B", "C", "D", None, None, None, None]


def test_no_more_answers_are_kept_than_have_room() -> None:
    work = Work()
    for question in range(3 * budget.KEPT):
        asked(work, str(question))
    assert len(work.budget._kept) == budget.KEPT
