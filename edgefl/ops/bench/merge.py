"""A round of many answers, without a network: `python -m edgefl.ops.bench.merge PARAMS ANSWERS FOLDER sums|rows`.

Each answer is written to the journal and the answer store, as in a run. Then all are merged by the mean, or also by
SGC, which needs all of them at once. The program prints how many MB this took in addition; of memory-mapped files it
counts only what the kernel cannot take back.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread

import numpy as np

from coordinator.decide.rounds import Rounds, Rules
from coordinator.durable.answer_store import AnswerStore, reader, rows_for
from coordinator.durable.journal import AnswerFrame, Journal
from edgefl.base.errors import RunError
from edgefl.job.run import job as jobs
from edgefl.job.run.job import Job
from edgefl.job.run.work import ModelRef, Worker, unpack_answer
from edgefl.learn.aggregation import Mean
from edgefl.learn.algorithms.fedgc import Sgc
from edgefl.learn.contract import Task
from edgefl.ops.bench.empty_jobs import still_job
from edgefl.ops.bench.noop import NOTHING, Noop, register
from edgefl.system.disk import FolderDisk
from edgefl.wire.messages import TO_COORDINATOR, Answer, read

STATUS = Path("/proc/self/status")
BETWEEN = 0.01  # seconds from one look to the next


class Peak(Thread):
    """Looks at this process's memory until it is told to stop."""

    def __init__(self, what: str) -> None:
        super().__init__(daemon=True)
        self.what, self.over = what, Event()
        self.first = self.most = self.now()

    def now(self) -> float:
        """MB, as the kernel counts them."""
        lines = STATUS.read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith(self.what))

    def run(self) -> None:
        while not self.over.wait(BETWEEN):
            self.most = max(self.most, self.now())

    def extra(self) -> float:
        """What there was more of than at the beginning."""
        self.over.set()
        self.join()
        return self.most - self.first


def main(params: int, answers: int, folder: Path, kind: str) -> None:
    """Measure, and print it as JSON."""
    register()
    job = still_job("merge", params, 1, answers)
    job = replace(job, stages=(Mean(), Sgc(margin=0.0))) if kind == "rows" else job
    run_state = jobs.begin(job)
    peak = Peak("RssAnon:" if kind == "rows" else "VmRSS:")
    peak.start()
    with TemporaryDirectory(dir=folder) as place:
        store, disk = AnswerStore(), FolderDisk(Path(place))
        _answer(job, store, Journal(disk), answers)
        updates = {f"device-{i:05d}": store.take(i.to_bytes(32, "big")) for i in range(answers)}
        after = jobs.advance(job, run_state, rows_for(job, updates, disk), population=answers)
    if not np.allclose(after.params, 1, rtol=1e-3):
        raise RunError("every parameter should be 1 after a round: an answer was lost")
    sys.stdout.write(json.dumps({"extra": peak.extra(), "sha256": after.sha256()}) + "\n")


def _answer(job: Job, store: AnswerStore, journal: Journal, answers: int) -> None:
    """Write the answers into the journal and the store, each as it comes from a device."""
    rounds = Rounds(Rules(rounds=1, seed=0, cohort=answers, quorum=answers, deadline=1.0))
    most = job.run.wire.limit_mb << 20
    for i in range(answers):
        device, digest = f"device-{i:05d}", i.to_bytes(32, "big")
        worker = Worker(job.name, device, Noop(), job.device_model, NOTHING, job.loss, job.run.transforms, 0)
        frame = worker.work(Task(1, job.start), ModelRef("run", "model"), {}).frame
        place = journal.write((), rounds, AnswerFrame(1, device, digest, frame))
        answer, opened = read(TO_COORDINATOR, frame, most)
        assert isinstance(answer, Answer)  # noqa: S101 - we have just made it
        update = unpack_answer(answer, opened.body, job.sent, job.up)
        store.put(digest, update, reader(job, answer, place, None))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
