"""Runs that are played at the same time: one process each, so that one that dies takes no other with it."""

import signal
from collections.abc import Iterator, Mapping
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path

from edgefl.lab.comparison.outcomes import FailedRun, Outcome, PlannedRun, Play, Progress, play_one
from edgefl.system import main_guard

SPAWN = get_context("spawn")  # a forked copy of onnxruntime's or torch's threads would hang


def play_apart(
    orders: Mapping[int, PlannedRun], root: Path | None, play: Play, *, workers: int, progress: Progress
) -> Iterator[tuple[int, Outcome]]:
    """Every order's outcome under its number, as they come; no process outlives this."""
    main_guard.leave_if_unguarded()
    waiting = list(orders.items())
    seats: dict[Connection, SpawnProcess] = {}
    playing: dict[Connection, tuple[int, PlannedRun]] = {}

    def sit(pipe: Connection) -> None:
        playing[pipe] = waiting.pop(0)
        pipe.send(playing[pipe][1])

    try:
        for _ in range(min(workers, len(waiting))):
            sit(_open(seats, root, play))
        while playing:
            ready = connection.wait(list(playing))
            for pipe in [pipe for pipe in playing if pipe in ready]:  # on Windows they are of another class
                number, order = playing[pipe]
                report = _hear(pipe, seats[pipe], order)
                if isinstance(report, tuple):
                    progress(*report)
                    continue
                del playing[pipe]
                if waiting:
                    sit(pipe if seats[pipe].exitcode is None else _open(seats, root, play))
                yield number, report
    finally:
        for pipe, process in seats.items():
            process.terminate()  # nothing is lost but a run that is not finished
            process.join()
            pipe.close()


def _open(seats: dict[Connection, SpawnProcess], root: Path | None, play: Play) -> Connection:
    """A new process; gives back the pipe to it."""
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=_serve, args=(theirs, root, play), name="compare", daemon=True)
    process.start()
    seats[ours] = process
    theirs.close()  # so that the end of the process is the end of the pipe
    return ours


def _hear(pipe: Connection, process: SpawnProcess, order: PlannedRun) -> tuple[str, int] | Outcome:
    """What the process says: that a round is over, or the outcome; if it is gone, that is the outcome."""
    try:
        report: tuple[str, int] | Outcome = pipe.recv()
    except (EOFError, ConnectionResetError):
        process.join()
        code = process.exitcode or 0
        if code == main_guard.UNGUARDED:
            raise main_guard.missing("workers > 1") from None
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return FailedRun(order.label, order.seed, f"its process died ({how})")
    return report


def _serve(pipe: Connection, root: Path | None, play: Play) -> None:
    """The life of such a process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who gives the orders
    while True:
        try:
            order = pipe.recv()
        except EOFError:
            return
        pipe.send(play_one(order, root, play, lambda label, seed: pipe.send((label, seed))))
