"""From a run file to a finished run: broker, transport, run folder, coordinator, results."""

import json
import logging
import signal
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coordinator import checkpoint, identity, journal
from coordinator.beginning import rules
from coordinator.device_keys import DeviceKeys
from coordinator.exporting import SHOWN, made_up
from coordinator.fleet_broker import fleet_of
from coordinator.metrics_file import METRICS, MetricsFile
from coordinator.renewals import Renewals
from coordinator.resuming import ON_THE_WIRE, changes
from coordinator.rounds import reopened
from coordinator.sightings import Sightings
from coordinator.threaded import Threaded
from coordinator.view import View
from edgefl.config.schema import RunFile
from edgefl.deployment.card import card
from edgefl.errors import ConfigError, StoreError
from edgefl.events import Changed, Fact, Started
from edgefl.fleet.members import MembersFile
from edgefl.protocol import broker
from edgefl.protocol.address import Address, parse, reachable
from edgefl.protocol.mqtt import MqttTransport, admitted
from edgefl.run import job as jobs
from edgefl.run.job import Job, RunState
from edgefl.system.disk import FolderDisk
from edgefl.system.locks import own
from edgefl.system.store import make_private

log = logging.getLogger(__name__)

MODEL = "model.onnx"


@dataclass(frozen=True, slots=True)
class Results:
    """Where everything is when a run has ended."""

    run_state: RunState
    folder: Path

    @property
    def files(self) -> dict[str, Path]:
        """The run's products, by what they are."""
        files = {
            "metrics": self.folder / METRICS,
            "journal": self.folder / journal.NAME,
            "ONNX model": self.folder / MODEL,
        }
        if newest := checkpoint.generations(FolderDisk(self.folder))[-1:]:
            files = {"checkpoint": self.folder / newest[0], **files}
        return {what: path for what, path in files.items() if path.exists()}


def coordinate(
    run: RunFile,
    root: Path | None,
    view: View,
    ready: Callable[[Address], AbstractContextManager[Any]] | None = None,
    *,
    fresh: bool = False,
) -> Results:
    """Run it to its end, or go on where it was interrupted; `ready` hears where devices may connect."""
    folder = run.run.folder / run.run.name
    with ExitStack() as until_done:
        until_done.enter_context(own(folder.with_name(f".{folder.name}")))
        address = _broker(run, until_done)
        settle(folder, run, fresh=fresh)
        metrics, fleet = MetricsFile(FolderDisk(folder)), fleet_of(run)
        sightings = Sightings(fleet.path) if fleet else None
        if sightings:
            until_done.callback(sightings.write)

        def tell(fact: Fact) -> None:
            metrics(fact)
            if sightings:
                sightings(fact)
            view.tell(fact)

        transport = MqttTransport(address, f"coordinator-{uuid.uuid4().hex[:8]}", tls=run.broker.tls)
        signer, members = identity.signer(run), MembersFile(fleet.members) if fleet else None
        serving = Threaded(
            run,
            transport,
            lambda: jobs.prepare(run, root)[0],
            folder=folder,
            tell=tell,
            signer=signer,
            device_keys=DeviceKeys(identity.devices_path(run), run.devices, members),
            renewals=Renewals(fleet.name) if fleet else None,
            seal=run.wire.seals(local=address.local),
        )
        until_done.callback(_stop_on_signals(serving))
        if ready:
            until_done.enter_context(ready(address))
        about = _told(run, address), signer.key, str(run.algorithm["name"]), run.run.rounds
        with view.watching():
            tell(Started(run.run.name, serving.shell.run_id, *about, at=serving.clock.wall()))
            run_state = serving.run()
        if serving.shell.artifacts.job:
            _export(folder / MODEL, serving.shell.artifacts.job, run_state)
        journal.Journal(FolderDisk(folder)).set(done="yes")  # the next run of its name begins anew
        return Results(run_state, folder)


def _told(run: RunFile, address: Address) -> str:
    """Where devices find the broker: coordinators of a fleet have a listener of their own."""
    fleet = fleet_of(run)
    settings = fleet.read_settings() if fleet else None
    return str(settings.broker if settings and settings.here == address else address)


def settle(folder: Path, run: RunFile, *, fresh: bool) -> None:
    """Make the folder ready: an unfinished run of this file is gone on with, a finished one moves aside."""
    try:
        make_private(folder)
    except OSError as error:
        raise StoreError(f"{folder}: cannot be made ({error.strerror}); choose another run.folder") from None
    disk = FolderDisk(folder)
    if not journal.exists(disk):
        return
    book = None if fresh else journal.Journal(disk)  # a damaged one, or another version's, can be left behind
    if book and not book.get("done"):
        _resume(book, folder, run)
    else:
        number = 1
        while folder.with_name(f"{folder.name}~{number}").exists():
            number += 1
        folder.rename(folder.with_name(f"{folder.name}~{number}"))
        make_private(folder)


def _resume(book: journal.Journal, folder: Path, run: RunFile) -> None:
    """What may change takes effect and is written down; of what may not, everything is named at once."""
    before = book.get("run")
    if before is None:
        return
    changed = changes(json.loads(before), run.model_dump(mode="json"))
    if refused := [str(change) for change in changed if not change.allowed]:
        raise ConfigError(
            f"{folder} holds an unfinished run, whose model depends on what was changed ({'; '.join(refused)}):"
            " change it back and go on, or begin anew with --fresh"
        )
    for change in changed:
        log.warning("changed key=%s before=%s now=%s", change.key, change.before, change.now)
    state = book.rounds(rules(run, run.make_algorithm().cohort_rounds))
    if state and any(change.key in ON_THE_WIRE for change in changed):
        state = reopened(state)
    if changed:
        book.amend(
            run.model_dump_json(),
            state,
            [Changed(change.key, change.before, change.now, at=time.time()) for change in changed],
        )


def finished(run: RunFile) -> bool | None:
    """Whether the last run of this name came to its end; if not, the same command goes on with it. None: no run yet."""
    disk = FolderDisk(run.run.folder / run.run.name)
    return bool(journal.Journal(disk, reading=True).get("done")) if journal.exists(disk) else None


def check_broker(run: RunFile) -> None:
    """Refuse an address where nobody answers, or where we are not let in; a broker of our own comes later."""
    address = parse(run.broker.url)
    if not address.embedded:
        reachable(address)
        admitted(address, run.broker.tls)


def _broker(run: RunFile, until_done: ExitStack) -> Address:
    address = parse(run.broker.url)
    if not address.embedded:
        return address
    running = until_done.enter_context(broker.start())
    log.info("broker kind=%s address=%s", running.kind, running.address)
    return running.address


def _stop_on_signals(serving: Threaded) -> Callable[[], None]:
    """Ctrl-C and SIGTERM end the run cleanly; gives back how to undo that."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, serving.stop) for number in numbers}

    def undo() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    return undo


def _export(path: Path, job: Job, run_state: RunState) -> None:
    from edgefl.deployment.deploy import save_onnx  # noqa: PLC0415 - onnx and torch only when there is a model to write
    from edgefl.models.torch_backend import TorchModel  # noqa: PLC0415

    shown = job.test if job.test is not None else job.public
    tokens = isinstance(job.model, TorchModel) and job.model.reads_tokens(job.sample)
    x = shown.x[:SHOWN] if len(shown) else made_up(job.sample, tokens=tokens)
    facts = card(
        job.run,
        round=run_state.round,
        sha256=run_state.sha256(),
        sample=job.sample,
        classes=job.classes,
        class_names=job.class_names,
        scores=jobs.scores(run_state.evaluation),
    )
    network, seed = job.run.task.model, job.run.run.seed
    gap = save_onnx(path, network, job.model, run_state.params, x=x, classes=job.classes, seed=seed, facts=facts)
    log.info("exported path=%s largest_difference=%.1e", path, gap)
