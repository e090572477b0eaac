"""Play runs at the same time, each in a process of its own, so that a crash ends one run only."""

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
    """Yield each order's number and outcome as it finishes; end all processes before returning."""
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
            process.terminate()  # only unfinished runs are lost
            process.join()
            pipe.close()


def _open(seats: dict[Connection, SpawnProcess], root: Path | None, play: Play) -> Connection:
    """Start a process; return the pipe to it."""
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=_serve, args=(theirs, root, play), name="compare", daemon=True)
    process.start()
    seats[ours] = process
    theirs.close()  # then the pipe ends with the process
    return ours


def _hear(pipe: Connection, process: SpawnProcess, order: PlannedRun) -> tuple[str, int] | Outcome:
    """Return the report of a process: a finished round or the outcome; `Failed` if the process has died."""
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
    """Play orders until the pipe is closed: the main function of a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent process
    while True:
        try:
            order = pipe.recv()
        except EOFError:
            return
        pipe.send(play_one(order, root, play, lambda label, seed: pipe.send((label, seed))))
