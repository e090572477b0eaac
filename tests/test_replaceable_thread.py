"""A thread is replaced when what nobody wants any more does not end, and only then."""

import threading
from collections.abc import Callable
from queue import SimpleQueue

from edgefl.system.background import Crashed, Put
from edgefl.system.replaceable_thread import ReplaceableThread

PATIENCE = 0.01


class Work:
    """Something that goes on until it is released."""

    def __init__(self) -> None:
        self.began, self.release = threading.Event(), threading.Event()
        self.thread: threading.Thread | None = None

    def __call__(self, _put: Put) -> None:
        self.thread = threading.current_thread()
        self.began.set()
        assert self.release.wait(60)


def yes() -> bool:
    return True


def begun(thread: ReplaceableThread, abandonable: Callable[[], bool] = yes) -> Work:
    work = Work()
    thread.start(work, abandonable)
    assert work.began.wait(60)
    return work


def test_what_ends_is_followed_in_the_same_thread() -> None:
    thread = ReplaceableThread(print, patience=60.0)
    first, second = begun(thread), Work()
    thread.start(second, yes)
    first.release.set()
    assert second.began.wait(60)
    assert second.thread is first.thread
    second.release.set()
    thread.close()
    assert thread.quiet


def test_what_does_not_end_is_left_behind_and_its_thread_ends_with_it() -> None:
    thread = ReplaceableThread(print, PATIENCE)
    first = begun(thread)
    second = begun(thread)
    assert first.thread is not None
    assert second.thread is not first.thread
    first.release.set()
    first.thread.join(60)
    assert not first.thread.is_alive()
    second.release.set()
    third = begun(thread)
    third.release.set()
    thread.close()
    assert thread.quiet


def test_a_second_one_is_not_left_behind_before_the_first_has_ended() -> None:
    thread = ReplaceableThread(print, PATIENCE)
    first, second, third = begun(thread), begun(thread), Work()
    thread.start(third, yes)
    for _ in range(20):
        assert not third.began.wait(PATIENCE)
    first.release.set()
    assert third.began.wait(60)
    assert not second.release.is_set()
    thread.close()
    assert not thread.quiet, "the second one still runs"
    for work in (second, third):
        work.release.set()


def test_what_must_not_be_left_is_waited_for_also_at_the_end() -> None:
    thread = ReplaceableThread(print, PATIENCE)
    asked = threading.Semaphore(0)

    def never() -> bool:
        asked.release()
        return False

    first, second = begun(thread, never), Work()
    thread.start(second, yes)
    assert asked.acquire(timeout=60)
    assert asked.acquire(timeout=60), "it is asked again"
    assert not second.began.is_set()
    closing = threading.Thread(target=thread.close)
    closing.start()
    assert asked.acquire(timeout=60)
    first.release.set()
    closing.join(60)
    assert not second.began.is_set(), "nothing is begun after the end"


def test_only_the_last_of_what_waits_is_done() -> None:
    thread = ReplaceableThread(print, patience=60.0)
    first, dropped, last = begun(thread), Work(), Work()
    thread.start(dropped, yes)
    thread.start(last, yes)
    first.release.set()
    assert last.began.wait(60)
    assert not dropped.began.is_set()
    last.release.set()
    thread.close()
    assert thread.quiet


def test_work_that_is_broken_off_does_not_take_the_next_with_it() -> None:
    crashes: SimpleQueue[Crashed] = SimpleQueue()
    thread = ReplaceableThread(crashes.put, PATIENCE)

    def broken(_put: Put) -> None:
        raise ValueError("broken")

    thread.start(broken, yes)
    assert str(crashes.get(timeout=60).error) == "broken"
    work = begun(thread)
    work.release.set()
    thread.close()
    assert thread.quiet
