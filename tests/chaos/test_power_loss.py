"""Power loss at every moment, and everything it may leave on a disk: the old or the new, never garbage."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from disk_recorder import Disk, DiskRecorder, restore
from fleet import run_table

from coordinator.decide import rounds
from coordinator.decide.rounds import Rounds, Rules
from coordinator.durable import checkpoint, segments
from coordinator.durable.checkpoint import Checkpoint
from coordinator.durable.journal import AnswerFrame, Journal
from device_agent.decide import vocabulary
from device_agent.durable.birth_number import born
from device_agent.durable.spool import Spool, SpooledUpdate
from device_agent.shell.service import Agent
from device_agent.shell.setup import DeviceIdentity, TrainingSetup
from device_agent.start import AgentHost
from edgefl.base.events import Round, from_json
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.job.run.job import Job, RunState
from edgefl.learn.data.dataset import Dataset
from edgefl.system import store
from edgefl.system.disk import FolderDisk
from edgefl.system.memory_disk import MemoryDisk
from edgefl.watch.metrics_file import METRICS, MetricsFile
from edgefl.wire import chunks
from edgefl.wire.signing import Signer
from tools.in_memory_broker import InMemoryBroker

FRAME = bytes(range(256)) * 3
BEFORE = np.full(4, -1, np.float32)
OLD = {"c": np.arange(4, dtype=np.float32)}
NEW = {"c": np.arange(4, dtype=np.float32) + 10}
FIRST = SpooledUpdate("job", "job.life", 3, "1", "m3+g", FRAME, chunks.digest(FRAME), OLD)
LONGER = FRAME[::-1] + b"longer"
SECOND = replace(FIRST, round=4, frame=LONGER, digest=chunks.digest(LONGER), kept=NEW)
THIRD = replace(FIRST, round=5, frame=b"short", digest=chunks.digest(b"short"))


@pytest.fixture
def disk_recorder(tmp_path: Path) -> Iterator[DiskRecorder]:
    (tmp_path / "taped").mkdir()
    with DiskRecorder(tmp_path / "taped") as disk_recorder:
        yield disk_recorder


class Player:
    """Replays every ending of a tape into a fresh folder."""

    played = 0  # endings, in all tests together

    def __init__(self, tmp_path: Path, figures: Callable[..., None]) -> None:
        self.folder, self.figures, self.number = tmp_path, figures, 0

    def each(self, disk_recorder: DiskRecorder, check: Callable[[Path, list[str]], None], since: int = 0) -> int:
        """How many there were."""
        disk_recorder.stop()
        for disk, marks in disk_recorder.endings(since):
            self.number += 1
            folder = self.folder / f"ending-{self.number}"
            folder.mkdir()
            restore(disk, folder)
            try:
                check(folder, marks)
            except Exception as error:
                raise AssertionError(f"ending {self.number} after {marks}: {_seen(disk)}") from error
        Player.played += self.number
        self.figures(
            "power loss",
            "writes, syncs and renames of spool, state, birth, journal, checkpoints, metrics recorded; after each every"
            " part of what was not synced lost, torn or zeroed",
            "none needed",
            f"{Player.played} states of the disk: always the old or the new, never garbage, no unreceipted update lost",
        )
        return self.number


def _seen(disk: Disk) -> dict[str, int | None]:
    return {name: None if data is None else len(data) for name, data in disk.items()}


@pytest.fixture
def player(tmp_path: Path, figures: Callable[..., None]) -> Player:
    return Player(tmp_path, figures)


def test_a_file_holds_the_old_or_the_new_and_after_the_call_only_the_new(
    disk_recorder: DiskRecorder, player: Player
) -> None:
    path = disk_recorder.root / "deep" / "down" / "file"
    for text in (b"first", b"second, longer", b"3"):
        store.write_atomically(path, text)
        disk_recorder.mark(text.decode())

    def check(folder: Path, marks: list[str]) -> None:
        file = folder / "deep" / "down" / "file"
        held = file.read_text() if file.exists() else ""
        steps = ["", "first", "second, longer", "3"]
        now = steps.index(marks[-1]) if marks else 0
        assert held in steps[now : now + 2]

    assert player.each(disk_recorder, check) > 50


def test_a_state_is_the_old_or_the_new(disk_recorder: DiskRecorder, player: Player) -> None:
    path = disk_recorder.root / "job.state"
    for number, kept in enumerate((OLD, NEW)):
        store.save(path, kept, {"number": number})
        disk_recorder.mark(str(number))

    def check(folder: Path, marks: list[str]) -> None:
        if not marks and not (folder / "job.state").exists():
            return
        arrays, about = store.load(folder / "job.state")
        assert about["number"] >= int(marks[-1]) if marks else True
        assert np.array_equal(arrays["c"], (OLD, NEW)[about["number"]]["c"])

    assert player.each(disk_recorder, check) > 40


def _same(a: SpooledUpdate, b: SpooledUpdate) -> bool:
    plain = [(h.job, h.run_key, h.round, h.attempt, h.model, h.frame, h.digest, h.kept["c"].tolist()) for h in (a, b)]
    return plain[0] == plain[1]


def test_a_spooled_update_is_there_until_its_receipt(disk_recorder: DiskRecorder, player: Player) -> None:
    spool = Spool(FolderDisk(disk_recorder.root))
    spool.put(FIRST)
    disk_recorder.mark("first is safe")
    disk_recorder.mark("receipt")
    spool.clear()
    spool.put(SECOND)
    disk_recorder.mark("second is safe")
    disk_recorder.mark("superseded")
    spool.put(THIRD)
    disk_recorder.mark("third is safe")
    allowed = {
        "": (None, FIRST),
        "first is safe": (FIRST,),
        "receipt": (None, FIRST, SECOND),
        "second is safe": (SECOND,),
        "superseded": (None, SECOND, THIRD),
        "third is safe": (THIRD,),
    }

    def check(folder: Path, marks: list[str]) -> None:
        held = Spool(FolderDisk(folder)).take()
        assert _plain(held) in [_plain(one) for one in allowed[marks[-1] if marks else ""]]

    assert player.each(disk_recorder, check) > 100


def _plain(held: SpooledUpdate | None) -> tuple[Any, ...] | None:
    return None if held is None else (held.round, held.frame, held.digest, held.run_key, held.kept["c"].tolist())


def test_after_a_receipt_a_device_has_the_update_or_what_it_kept_of_it(
    disk_recorder: DiskRecorder, player: Player
) -> None:
    Spool(FolderDisk(disk_recorder.root)).put(FIRST)
    store.save(disk_recorder.root / "job.life.state", {"c": BEFORE}, {})
    agent = _agent(disk_recorder.root)
    receipt = len(disk_recorder.ops)
    agent._perform(vocabulary.Commit(FIRST.round, FIRST.digest.hex()))
    agent._perform(vocabulary.Forget(FIRST.round, FIRST.digest.hex()))

    def check(folder: Path, _: list[str]) -> None:
        kept = store.load(folder / "job.life.state")[0]["c"]
        if Spool(FolderDisk(folder)).take() is None:
            assert np.array_equal(kept, OLD["c"]), "the receipt came, and what was learned is gone"
        else:
            assert np.array_equal(kept, OLD["c"]) or np.array_equal(kept, BEFORE)

    assert player.each(disk_recorder, check, since=receipt) > 10


def _agent(folder: Path) -> Agent:
    return AgentHost(
        DeviceIdentity("d", "default", "none", signer=Signer.new()),  # a file of its own, which has tests of its own
        InMemoryBroker().client("d"),
        FolderDisk(folder),
        TrainingSetup(
            Dataset(np.zeros((2, 2), np.float32), np.zeros(2, np.int64), 2),
            lambda *_: pytest.fail("nothing is trained here"),
        ),
    ).agent


def test_a_device_never_counts_its_births_backwards(disk_recorder: DiskRecorder, player: Player) -> None:
    """By its disk alone, on a machine whose clock stands still."""

    def number(folder: Path) -> int:
        return born(FolderDisk(folder), lambda: "d", 0.0).number

    numbers = []
    for _ in range(3):
        numbers.append(number(disk_recorder.root))
        disk_recorder.mark(str(numbers[-1]))

    def check(folder: Path, marks: list[str]) -> None:
        assert number(folder) > (int(marks[-1]) if marks else 0)

    assert numbers == [1, 2, 3]
    assert player.each(disk_recorder, check) > 20


@pytest.mark.parametrize(("together", "oldest"), [(1, 3), (2, 1)], ids=["each fills a file", "two do"])
def test_the_journal_has_every_write_that_returned_and_perhaps_the_one_in_hand(
    disk_recorder: DiskRecorder, player: Player, together: int, oldest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "ROUNDS", together)
    rules = Rules(rounds=9, seed=1, cohort=1, quorum=1, deadline=5.0)
    book, s, known = Journal(FolderDisk(disk_recorder.root)), Rounds(rules), [_everything(Journal(MemoryDisk()), rules)]
    events: list[rounds.Event] = [rounds.DeviceJoined("a", 0)]
    for round in range(1, 6):  # so many that a segment goes
        events += [rounds.DeviceAnswered("a", round, 0), rounds.RoundMerged(round, 0)]
    for event in events:
        s, _ = rounds.step(s, event)
        answer = AnswerFrame(s.round, "a", bytes(32), FRAME) if isinstance(event, rounds.DeviceAnswered) else None
        book.write((event,), s, answer, 1 if answer else None)
        known.append(_everything(book, rules))
        disk_recorder.mark(type(event).__name__)

    def check(folder: Path, marks: list[str]) -> None:
        contents = _everything(Journal(FolderDisk(folder)), rules)
        assert contents in known[len(marks) : len(marks) + 2]
        assert _everything(Journal(FolderDisk(folder)), rules) == contents

    assert player.each(disk_recorder, check) > 500
    assert min(path.name for path in disk_recorder.root.glob("journal-*")) == f"journal-{oldest:06d}.log"


def _everything(book: Journal, rules: Rules) -> tuple[Any, ...]:
    """All that a coordinator would find."""
    merges = [(book.merge(round), book.answers(round)) for round in range(1, 6)]
    return book.rounds(rules), book.devices(), book.answers(), merges, list(book.story())


@pytest.fixture(scope="module")
def job() -> Job:
    return jobs.prepare(parse(RunFile, run_table(Path("unused")), "chaos", environment={}))[0]


def test_the_newest_checkpoint_that_was_called_safe_is_there_or_a_newer_one(
    disk_recorder: DiskRecorder, player: Player, job: Job
) -> None:
    for round in range(1, 6):
        run_state = RunState(round, job.start + round, job.start - round, {"stage": {"c": job.start * round}})
        checkpoint.save(FolderDisk(disk_recorder.root), job, Checkpoint(run_state, (), 0, 0))
        disk_recorder.mark(str(round))

    def check(folder: Path, marks: list[str]) -> None:
        safe = int(marks[-1]) if marks else 0
        saved = checkpoint.latest(FolderDisk(folder), job)
        assert (saved.run_state.round if saved else 0) in (safe, safe + 1)
        if saved is not None:
            run_state = saved.run_state
            assert np.array_equal(run_state.params, job.start + run_state.round)
            assert run_state.previous is not None
            assert np.array_equal(run_state.previous, job.start - run_state.round)
            assert np.array_equal(run_state.states["stage"]["c"], job.start * run_state.round)

    assert player.each(disk_recorder, check) > 100


def test_the_round_that_the_newest_checkpoint_calls_the_best_is_always_there(
    disk_recorder: DiskRecorder, player: Player, job: Job
) -> None:
    scores = [0.1, 0.9, 0.8, 0.7, 0.6, 0.95, 0.5, 0.96, 0.97]  # the best is the last, is overtaken, is long gone
    states = [
        RunState(round, job.start + round, best=max(so_far), best_round=so_far.index(max(so_far)))
        for round, so_far in enumerate(scores[: end + 1] for end in range(len(scores)))
    ]
    for passed in pairwise(states):
        checkpoint.save(FolderDisk(disk_recorder.root), job, Checkpoint(passed[-1], (), 0, 0), passed)
        disk_recorder.mark(str(passed[-1].round))

    def check(folder: Path, marks: list[str]) -> None:
        disk = FolderDisk(folder)
        if not checkpoint.generations(disk):
            assert not marks
            return
        newest = checkpoint.read(disk, checkpoint.generations(disk)[-1])[1]
        name = checkpoint.best(disk)
        tensors, about = checkpoint.read(disk, name)
        assert about["round"] == newest["best"]["round"] == states[newest["round"]].best_round
        assert np.array_equal(checkpoint.params(disk, name, tensors, about), job.start + about["round"])

    assert player.each(disk_recorder, check) > 150
    assert checkpoint.BEST not in FolderDisk(disk_recorder.root).names(), "the last is the best"


def test_the_metrics_have_every_round_once_when_the_run_goes_on(disk_recorder: DiskRecorder, player: Player) -> None:
    told = [Round(round, scores={"accuracy": round / 10}) for round in range(1, 5)]
    tell = MetricsFile(FolderDisk(disk_recorder.root))
    for fact in told:
        tell(fact)
        disk_recorder.mark("a round was told, and the next one began")

    def check(folder: Path, marks: list[str]) -> None:
        newest = told[: len(marks) + 1][-1]
        MetricsFile(FolderDisk(folder))(newest)  # a run that goes on tells the round of its newest checkpoint again
        lines = [from_json(json.loads(line)) for line in (folder / METRICS).read_bytes().splitlines()]
        assert lines == told[: newest.round]

    assert player.each(disk_recorder, check) > 30
