"""Slow work in a thread of its own."""

import gc
import weakref
from queue import SimpleQueue
from threading import Event

from edgefl.system.background import Crashed, Threads


class Work:
    """What a work holds on to; its name is all that it tells."""

    def __init__(self, name):
        self.name = name

    def __call__(self, put):
        put(self.name)


def test_works_are_done_in_order_and_tell_what_came_of_them():
    told = SimpleQueue()
    threads = Threads(told.put, "test")
    for name in "abc":
        threads.start(Work(name))
    assert [told.get() for _ in "abc"] == ["a", "b", "c"]
    threads.close()


def test_a_work_that_is_done_is_let_go_while_the_thread_waits_for_the_next():
    """It holds a model and an update, and a device may wait for hours."""
    told, gone = SimpleQueue(), Event()
    threads = Threads(told.put, "test")
    work = Work("first")
    weakref.finalize(work, gone.set)
    threads.start(work)
    del work
    assert told.get() == "first"
    gc.collect()
    assert gone.wait(10), "the thread still holds what it has done"
    threads.close()


def test_an_error_is_told_and_the_next_work_is_done():
    told = SimpleQueue()
    threads = Threads(told.put, "test")
    threads.start(lambda _: 1 / 0)
    threads.start(Work("next"))
    crashed = told.get()
    assert isinstance(crashed, Crashed)
    assert isinstance(crashed.error, ZeroDivisionError)
    assert told.get() == "next"
    threads.close()


def test_what_a_work_puts_may_be_the_end_of_its_owner():
    """Where whoever brings an event carries it out, the thread closes itself; nothing is begun after that."""
    begun, ended = SimpleQueue(), Event()

    def put(_):
        threads.close()
        ended.set()

    threads = Threads(put, "test")
    threads.start(Work("last"))
    threads.start(lambda _: begun.put("another"))
    assert ended.wait(10)
    threads.close()
    assert begun.empty()
