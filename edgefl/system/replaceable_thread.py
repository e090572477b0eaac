"""A thread for one thing at a time, which is replaced when something that nobody wants any more does not end.

Native code cannot be interrupted from outside. What was cancelled and still sits in it after a second is left behind in
its thread, where it ends some time, and a new thread does what comes next.
"""

from collections.abc import Callable
from dataclasses import dataclass
from threading import Condition, Thread, Timer, current_thread

from edgefl.system.background import Crashed, Put, Work

PATIENCE = 1.0  # seconds that something cancelled may take to end


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    work: Work
    abandonable: Callable[[], bool]


class ReplaceableThread:
    """A background for somebody who wants the last thing only, and cancels what he began before.

    At most one thread is left behind at a time.
    """

    def __init__(self, put: Put, patience: float = PATIENCE) -> None:
        self._put, self._patience = put, patience
        self._news = Condition()
        self._thread: Thread | None = None
        self._doing: _Job | None = None  # by the thread
        self._next: _Job | None = None
        self._left: Thread | None = None  # still at work on what nobody wants
        self._closed = False

    @property
    def quiet(self) -> bool:
        """Nothing runs."""
        with self._news:
            return self._doing is None and self._left is None

    def start(self, work: Work, abandonable: Callable[[], bool] = lambda: False) -> None:
        """Do this next, in place of what has not yet begun. `abandonable` says whether it could be left behind now."""
        with self._news:
            self._next = _Job(work, abandonable)
            if self._thread is None:
                self._renew()
            elif self._doing:
                timer = Timer(self._patience, self._replace, (self._doing,))
                timer.daemon = True
                timer.start()
            self._news.notify_all()

    def cancel(self) -> None:
        """The work looks for itself whether it is still wanted."""

    def close(self) -> None:
        """Begin nothing more, and wait for what goes on, unless it can be left behind: see `quiet`."""
        with self._news:
            self._closed, self._next = True, None
            self._news.notify_all()
            while self._doing and not (
                self._news.wait_for(lambda: self._doing is None, self._patience) or self._doing.abandonable()
            ):
                pass  # it ends by itself, and soon: it is ours and not from outside

    def _renew(self) -> None:
        self._doing = None
        self._thread = Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _replace(self, late: _Job) -> None:
        """Go on without what is late, as soon as it may be left behind and nothing else is."""
        with self._news:
            while self._doing is late and self._next and not self._closed:
                if self._left is None and late.abandonable():
                    self._left = self._thread
                    self._renew()
                    return
                self._news.wait(self._patience)

    def _serve(self) -> None:
        me = current_thread()
        while job := self._take(me):
            self._do(job)
            with self._news:
                if self._thread is me:
                    self._doing = None
                else:
                    self._left = None
                self._news.notify_all()

    def _do(self, job: _Job) -> None:
        try:
            job.work(self._put)
        except Exception as error:  # noqa: BLE001 - handed to the owner's loop, which raises it
            self._put(Crashed(error))

    def _take(self, me: Thread) -> _Job | None:
        """What is to be done next; nothing, if this thread is no longer the one that does it."""
        with self._news:
            self._news.wait_for(lambda: self._next or self._closed or self._thread is not me)
            if self._closed or self._thread is not me:
                return None
            self._doing, self._next = self._next, None
            return self._doing
