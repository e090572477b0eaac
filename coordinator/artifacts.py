"""Everything large, which the core knows by a digest or a number: the job, its models at the broker, the answers."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from coordinator import merging, staleness
from coordinator import vocabulary as words
from coordinator.budgets import budget
from coordinator.guards import check
from coordinator.journal import Kept
from coordinator.publisher import Publisher
from coordinator.staleness import Latecomer, Policy
from edgefl.config.schema import RunFile
from edgefl.contract import Update
from edgefl.errors import WireError
from edgefl.events import Done
from edgefl.protocol.frames import SEAL, Unread
from edgefl.protocol.messages import ENCLOSED, SMALL, Answer, Assignment, Enclosed
from edgefl.protocol.sealing import Opener
from edgefl.protocol.signing import Signer
from edgefl.protocol.transport import Transport
from edgefl.run import job as jobs
from edgefl.run.answer_schema import AnswerSchema, body_limit
from edgefl.run.job import Job, RunState
from edgefl.run.work import unpack_answer
from edgefl.system.background import Work
from edgefl.system.clock import Clock
from edgefl.system.disk import Disk

log = logging.getLogger(__name__)

ENCLOSED_IN_ALL = 1 << 20  # bytes of a model in all tasks of a round: for more devices the broker copies it


@dataclass(slots=True)
class Aside:
    """An answer as it came, until its verdict."""

    answer: Answer
    unread: Unread
    kept: Kept
    update: Update | None = None


class Artifacts:
    """Of one run. Until the job is prepared there are no models, and no answer can be opened."""

    def __init__(self, run: RunFile, run_id: str, transport: Transport, signer: Signer, *, seal: bool = False) -> None:
        self.run, self.run_id, self.transport, self.signer = run, run_id, transport, signer
        self.seal, self.opener = seal, Opener(signer)  # what came sealed is opened even if open answers will do
        self.standing: merging.Standing | None = None
        self.answer_schema: AnswerSchema | None = None
        self.publisher: Publisher | None = None
        self.aside: dict[bytes, Aside] = {}
        self.updates: dict[bytes, Update] = {}  # those that count, by digest

    # ---- the job and its models --------------------------------------------------------------------------------

    @property
    def job(self) -> Job | None:
        return self.publisher.job if self.publisher else None

    @property
    def run_state(self) -> RunState | None:
        return self.standing.run_state if self.standing else None

    def prepared(self, event: merging.Prepared, now: float) -> words.Prepared:
        """The job is there."""
        job, fleet = event.job, self.run.broker.fleet
        self.standing, self.answer_schema = event.standing, event.answer_schema
        self.publisher = Publisher(self.transport, fleet, job, run_id=self.run_id, signer=self.signer)
        self.updates.update(event.updates)
        run_state = event.standing.run_state
        done = jobs.finished(job, run_state)
        return words.Prepared(now, run_state.round, self._model(), done, event.recalled, event.told)

    def merged(self, event: merging.Merged, now: float) -> words.Merged:
        """The next model is there."""
        self.standing = event.standing
        run_state, (_, publisher) = event.standing.run_state, self._here()
        done = jobs.finished(publisher.job, run_state)
        return words.Merged(now, run_state.round, self._model(), done, event.reports)

    def frame_limit(self) -> int:
        """What a frame may weigh, now that the model is known, and what the algorithm adds to an answer."""
        _, publisher = self._here()
        body = body_limit(self.answer_schema, publisher.job.model.layout, publisher.job.up)
        return min(self.run.wire.limit_mb << 20, SMALL + body + SEAL)

    def summary(self, leave: words.Leave) -> Done:
        """The whole run."""
        here, publisher = self._here()
        total, refused = leave.total, dict(leave.refusals)
        counted = {"bytes_up": total.bytes_up, "bytes_down": total.bytes_down, "late": total.late}
        return jobs.summary(publisher.job, here.run_state, **counted, refused=refused, seconds=leave.seconds)

    def _model(self) -> words.Model | None:
        """The model of the next round, as the core knows it; None: there is no next one."""
        here, publisher = self._here()
        if here.frame is None:
            return None
        before = publisher.published.get(here.run_state.round)
        previous = 0 if here.previous is None else len(before.frame if before else here.previous)
        return words.Model(here.run_state.round + 1, len(here.frame), previous)

    def publish(self) -> tuple[str, ...]:
        """Put the model of the next round at the broker; the ids of all that stand there now."""
        here, publisher = self._here()
        if here.previous is not None:
            publisher.publish(here.run_state.round, here.previous)
        if here.frame is not None:
            publisher.publish(here.run_state.round + 1, here.frame)
        return tuple(publication.id for publication in publisher.all())

    def publish_again(self, device: str, model: str, now: float, *, whole: bool) -> None:
        """A device did not find this."""
        if self.publisher and self.publisher.asked_again(model, now, whole=whole):
            log.warning("published again for=%s model=%s whole=%s", device, model, whole)

    def enclosed(self, round: int, invitees: int) -> Enclosed | None:
        """The model, if it is so small that it comes with the tasks of so many devices."""
        _, publisher = self._here()
        model = publisher.published[round]
        most = min(self.run.wire.enclose_kb << 10, ENCLOSED_IN_ALL // max(1, invitees))
        small = len(model.frame) <= most and len(model.manifest) <= ENCLOSED
        return Enclosed(manifest=model.manifest, frame=model.frame) if small else None

    def task(self, round: int, opening: int, invitee: words.Invitee, enclosed: Enclosed | None = None) -> Assignment:
        """What a device is asked to do."""
        here, publisher = self._here()
        work = budget(invitee.seconds_per_step, self.run.rounds.deadline)
        return Assignment(
            job=self.run.run.name,
            run_id=self.run_id,
            round=round,
            attempt=opening,
            model=publisher.published[round].id,
            previous=publisher.published[round - 1].id if here.previous is not None else None,
            graphs=publisher.graphs.id if publisher.graphs else None,
            overtime=self.run.rounds.late != "drop",
            counted=invitee.counted,
            batches=work.batches,
            seconds=work.seconds,
            installation=invitee.installation,
            enclosed=None if invitee.has_model else enclosed,
            seal=self.opener.key if self.seal else None,
        )

    def merge(self, merge: words.Merge, policy: Policy, disk: Disk | None, clock: Clock) -> Work:
        """The work of merging these answers, which are nobody's afterwards."""
        here, publisher = self._here()
        arrived = {id: self.updates.pop(kept.digest) for id, kept in merge.answers.items()}
        behind = {id: Latecomer(kept.round, self.updates.pop(kept.digest)) for id, kept in merge.late.items()}
        updates, late_ones = staleness.fold(policy, merge.round, arrived, behind)
        return partial(merging.Merging(publisher.job, here.run_state, updates, late_ones, merge).work, disk, clock)

    def _here(self) -> tuple[merging.Standing, Publisher]:
        assert self.standing is not None and self.publisher is not None  # noqa: S101, PT018 - the core waits for both
        return self.standing, self.publisher

    # ---- answers -----------------------------------------------------------------------------------------------

    def put_aside(self, device: str, digest: bytes, answer: Answer, unread: Unread, frame: bytes | bytearray) -> None:
        """Until the core says what becomes of it."""
        self.aside[digest] = Aside(answer, unread, Kept(answer.round, device, digest, frame))

    def look_into(self, digest: bytes, now: float) -> words.Usable | words.Unusable:
        """Open an answer: can its numbers be used?"""
        try:
            self._open(digest)
        except WireError as error:
            return words.Unusable(now, digest, error.code, str(error))
        return words.Usable(now, digest)

    def _open(self, digest: bytes) -> None:
        here, publisher = self._here()
        aside = self.aside[digest]
        answer, publication = aside.answer, publisher.published.get(aside.answer.round)
        if publication is not None and answer.model != publication.id:
            raise WireError(
                "update.model", f"trained from model {answer.model}, round {answer.round} has {publication.id}"
            )
        layout, codec = publisher.job.model.layout, publisher.job.up
        if self.seal and not aside.unread.sealed:
            raise WireError("update.unsealed", "an open answer to a task that asked for a sealed one")
        body = aside.unread.body(body_limit(self.answer_schema, layout, codec), self.opener)
        update = unpack_answer(answer, body, layout.size, codec)
        if self.answer_schema:
            self.answer_schema.check(update.extra)
        check(answer.device, update, here.length)
        aside.update = update

    def accepted(self, actions: Iterable[words.Action]) -> Kept | None:
        """The answer that these actions accept, as it came."""
        digests = (one.digest for one in actions if isinstance(one, words.Accept | words.Late))
        return next((self.aside[digest].kept for digest in digests), None)

    def keep(self, digest: bytes) -> None:
        """It counts."""
        update = self.aside.pop(digest).update
        assert update is not None  # noqa: S101 - the core has no verdict before it was opened
        self.updates[digest] = update

    def put_away(self, digest: bytes) -> None:
        """It does not; one that came before it, and was the same, may."""
        self.aside.pop(digest, None)

    def forget(self, *digests: bytes) -> None:
        """They counted, and do not any more."""
        for digest in digests:
            self.updates.pop(digest, None)
