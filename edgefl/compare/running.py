"""Playing the variants: every variant with every seed, one after another or several at a time."""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from threading import Thread
from typing import Any, TypeAlias

from edgefl.compare.variants import Variant, seeded
from edgefl.config import RunFile
from edgefl.errors import ConfigError, RunError

Tell: TypeAlias = Callable[[dict[str, Any]], None]
Play: TypeAlias = Callable[[RunFile, Path | None, Tell], None]  # a module's own function: it travels to processes
Progress: TypeAlias = Callable[[str, int], None]  # told of every round: which variant, which seed


@dataclass(frozen=True, slots=True)
class Played:
    """One run: what it told, round by round, and at its end."""

    label: str
    seed: int
    rounds: tuple[dict[str, Any], ...]
    done: dict[str, Any]

    @property
    def accuracy(self) -> list[float]:
        return [report["accuracy"] for report in self.rounds]

    @property
    def forgetting(self) -> list[float]:
        """From round 2 on: before the first there was nothing to forget."""
        return [report["forgetting"] for report in self.rounds[1:]]

    def summed(self, *keys: str) -> list[float]:
        """A running total over the rounds, e.g. of `bytes_up` and `bytes_down`."""
        total, sums = 0.0, []
        for report in self.rounds:
            total += sum(report[key] for key in keys)
            sums.append(total)
        return sums


def play_all(
    variants: Sequence[Variant],
    seeds: int,
    root: Path | None,
    play: Play,
    *,
    workers: int = 1,
    progress: Progress = lambda _label, _seed: None,
) -> tuple[Played, ...]:
    """Every variant with every seed, by variant and then by seed, whatever finished first."""
    orders = [(v.label, seeded(v.run, v.run.run.seed + i)) for v in variants for i in range(seeds)]
    if workers == 1:
        return tuple(_play(label, run, root, play, progress) for label, run in orders)
    # spawn: a forked copy of onnxruntime's or torch's threads would hang.
    context = get_context("spawn")
    heard: SimpleQueue[tuple[str, int] | None] = context.SimpleQueue()
    listener = Thread(target=_listen, args=(heard, progress), name="progress")
    listener.start()
    try:
        with ProcessPoolExecutor(workers, context, initializer=_move_in, initargs=(heard,)) as pool:
            futures = {pool.submit(_play_there, label, run, root, play): i for i, (label, run) in enumerate(orders)}
            try:
                found = {futures[future]: future.result() for future in as_completed(futures)}
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)  # one failure is enough to know
                raise
    finally:
        heard.put(None)
        listener.join()
    return tuple(found[i] for i in range(len(orders)))


def _play(label: str, run: RunFile, root: Path | None, play: Play, progress: Progress) -> Played:
    told: list[dict[str, Any]] = []

    def tell(event: dict[str, Any]) -> None:
        told.append(event)
        if event["event"] == "round":
            if event["accuracy"] is None:
                raise ConfigError("nothing to compare by; give task.data with classes and a test part")
            progress(label, run.run.seed)

    try:
        play(run, root, tell)
    except (ConfigError, RunError) as error:
        raise type(error)(f"{label}, seed {run.run.seed}: {error}") from None
    rounds = tuple(event for event in told if event["event"] == "round")
    return Played(label, run.run.seed, rounds, told[-1])


_HEARD: list["SimpleQueue[tuple[str, int] | None]"] = []  # of a process in the pool: where it reports to


def _move_in(heard: "SimpleQueue[tuple[str, int] | None]") -> None:
    _HEARD.append(heard)


def _play_there(label: str, run: RunFile, root: Path | None, play: Play) -> Played:
    return _play(label, run, root, play, lambda name, seed: _HEARD[0].put((name, seed)))


def _listen(heard: "SimpleQueue[tuple[str, int] | None]", progress: Progress) -> None:
    while (said := heard.get()) is not None:
        progress(*said)
