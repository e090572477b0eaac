"""From a run file to a finished run: broker, transport, run folder, coordinator, results."""

import gc
import json
import logging
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from coordinator.durable import checkpoint, identity, journal
from coordinator.durable.existing_run import settled, unfinished
from coordinator.durable.journal import Journal
from coordinator.durable.resuming import RequestedRounds
from coordinator.durable.run_history import complete_metrics
from coordinator.shell import known_runs
from coordinator.shell.device_keys import DeviceKeys
from coordinator.shell.exporting import read, reads_tokens
from coordinator.shell.fleet_broker import fleet_of
from coordinator.shell.page import served
from coordinator.shell.renewals import Renewals
from coordinator.shell.setup import Security
from coordinator.shell.threaded import Threaded
from edgefl.base.errors import ConfigError, Interrupted
from edgefl.base.events import Fact, Failed, Round, Started, Tell, Waiting
from edgefl.base.vector import Vector
from edgefl.delivery.card import card
from edgefl.delivery.probe import SHOWN, made_up
from edgefl.fleet.folder import FleetFolder
from edgefl.fleet.members import MembersFile
from edgefl.fleet.notices import Notices
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.job.run import reporting, statistics
from edgefl.job.run.job import Job, RunState
from edgefl.job.run.network import Network, export_graphs
from edgefl.learn.models.onnx.bundle import unpack
from edgefl.system.disk import FolderDisk
from edgefl.system.locks import own
from edgefl.system.service_manager import ServiceManager
from edgefl.system.software import versions
from edgefl.watch.expiries import expiry
from edgefl.watch.exporters.opening import Exporters, flattened
from edgefl.watch.fleet_inventory import LastSeenWriter
from edgefl.watch.metrics_file import METRICS, reports
from edgefl.watch.view import View
from edgefl.wire import broker
from edgefl.wire.address import Address, parse
from edgefl.wire.opening import open_transport

log = logging.getLogger(__name__)

NOBODY = ServiceManager({})  # a run that no service manager started
MODEL, BEST_MODEL = "model.onnx", "best.onnx"


@dataclass(frozen=True, slots=True)
class Results:
    """Where everything is when a run has ended."""

    run_state: RunState
    folder: Path

    @property
    def files(self) -> dict[str, Path]:
        """The run's products, by what they are."""
        return products(self.folder)


def products(folder: Path) -> dict[str, Path]:
    """What a run has left in its folder, by what it is."""
    files = {"metrics": folder / METRICS, "journal": folder / journal.NAME, "ONNX model": folder / MODEL}
    files["best model"] = folder / BEST_MODEL
    if newest := checkpoint.generations(FolderDisk(folder))[-1:]:
        files = {"checkpoint": folder / newest[0], **files}
    return {what: path for what, path in files.items() if path.exists()}


@contextmanager
def opened(run: RunFile, *, fresh: bool = False) -> Iterator[Journal | None]:
    """Own the run's folder, and open the journal of a run that goes on: once, for the whole start.

    None: a run begins. Raise `Finished` if the run has ended.
    """
    folder = run.run.folder / run.run.name
    with own(known_runs.lock_of(folder)):
        yield None if fresh else unfinished(folder, run)


def coordinate(
    run: RunFile,
    book: Journal | None,
    root: Path | None,
    view: View,
    ready: Callable[[Address], AbstractContextManager[Any]] | None = None,
    *,
    stated: RequestedRounds | None = None,
    origins: str | None = None,
    network: Callable[[], Network],
    manager: ServiceManager = NOBODY,
) -> Results:
    """Run it to its end, or go on where it was interrupted; `ready` hears where devices may connect.

    `book` is what `opened` gives. Without it a run begins, and one that is in its folder is moved aside.
    `origins` says who set what in the run file, for later readers of the run (`edgefl.job.config.origin`).
    `network` is called when the first device is there; it works in a child process, so that torch is not loaded here.
    The `manager` hears how the run goes.
    """
    run.refuse_simulated_only()
    folder = run.run.folder / run.run.name
    with ExitStack() as until_done:
        address = _broker(run, until_done)
        run, book = settled(folder, run, book, stated=stated)
        known_runs.announce(folder)
        metrics, fleet = complete_metrics(book), fleet_of(run)
        alone = parse(run.broker.url).embedded  # then the fleet ends with the run
        last_seen = None if alone else LastSeenWriter(FleetFolder(run.broker.fleet).seen, run.run.name)
        if last_seen:
            until_done.callback(last_seen.write)
        page = until_done.enter_context(served(run, book, folder))
        certificates = MembersFile(fleet.members) if fleet else None
        settings = flattened(run.model_dump(mode="json", exclude={"export", "devices"}))
        elsewhere = Exporters(run.export, folder, settings, partial(reports, FolderDisk(folder)))
        until_done.callback(elsewhere.close)

        def tell(fact: Fact) -> None:
            metrics(fact)
            if last_seen:
                last_seen(fact)
            page.tell(fact)
            elsewhere(fact)
            view.tell(fact)
            manager.status(status_line(run, fact))
            if told := expiry(certificates, fact):
                tell(told)

        transport = open_transport(address, "coordinator", run.broker.tls)
        signer, members = identity.signer(run), MembersFile(fleet.members) if fleet else None
        serving = Threaded(
            run,
            transport,
            lambda: jobs.prepare(run, root, network())[0],
            folder=folder,
            journal=book,
            tell=tell,
            security=Security(
                signer=signer,
                device_keys=DeviceKeys(identity.devices_path(run), run.devices, members),
                renewals=Renewals(fleet.name) if fleet else None,
                notices=Notices(fleet, members) if fleet and members else None,
                seal=run.wire.seals(local=address.local),
            ),
            manager=manager,
        )
        book.set(software=json.dumps(versions()), **({"origins": origins} if origins else {}))
        until_done.callback(_stop_on_signals(serving))
        if ready:
            until_done.enter_context(ready(address))
        about = _told(run, address), signer.key, str(run.algorithm["name"]), run.run.rounds, run.rounds.deadline
        gc.freeze()  # what is here is here to stay: looking for garbage in it only takes time
        until_done.callback(gc.unfreeze)
        with view.watching():
            tell(Started(run.run.name, serving.shell.run_id, *about, at=serving.clock.wall()))
            if page.shown:
                view.tell(replace(page.shown, at=serving.clock.wall()))
            with _failure_told(tell), manager.loop():
                run_state = serving.run()
        if job := serving.shell.artifacts.job:
            _export(folder / MODEL, job, run_state)
            _export_best(folder, job, run_state)
        if run.keep.updates == "none":  # before it is left alone: a kill in between drops them at the next start
            book.drop_merged()
        book.set(done="yes")  # from now on it is left alone
        return Results(run_state, folder)


@contextmanager
def _failure_told(tell: Tell) -> Iterator[None]:
    """Emit `Failed` when an unexpected exception ends the run."""
    try:
        yield
    except Interrupted:
        raise
    except Exception as error:
        tell(Failed(str(error) or type(error).__name__, at=time.time()))
        raise


def status_line(run: RunFile, fact: Fact) -> str:
    """Return what `systemctl status` shows after this fact; "" if it changes nothing there."""
    match fact:
        case Started(broker=broker):
            return f"run '{run.run.name}' at {broker}: waits for devices"
        case Waiting(reason=reason):
            return f"run '{run.run.name}' waits: {reason}"
        case Round(round=number):
            return f"run '{run.run.name}': round {number} of {run.run.rounds} is done"
    return ""


def _told(run: RunFile, address: Address) -> str:
    """Where devices find the broker: coordinators of a fleet have a listener of their own."""
    fleet = fleet_of(run)
    return str(fleet.read_settings().broker if fleet and fleet.here == address else address)


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
    facts = card(
        job.run,
        round=run_state.round,
        sha256=run_state.sha256(),
        sample=job.sample,
        classes=job.classes,
        class_names=job.class_names,
        targets=job.targets,
        target_names=job.target_names,
        scores=reporting.scores(jobs.chosen(job, run_state)),
        origin=run_state.origin,
        normalise=statistics.read(statistics.constants(run_state.states)),
        form=job.form,
    )
    _write(path, job, run_state, run_state.params, facts)


def _export_best(folder: Path, job: Job, run_state: RunState) -> None:
    """The best model beside the last; where the last is the best, there is no other."""
    path = folder / BEST_MODEL
    if run_state.best_round in (None, run_state.round):
        path.unlink(missing_ok=True)  # of the end that the run had before it was extended
        return
    try:
        trained = read(folder, best=True)
    except ConfigError as error:  # the run is over, and its last model is there
        log.warning("the best model is not exported: %s", error)
        return
    _write(path, job, run_state, trained.params, trained.facts)


def _write(path: Path, job: Job, run_state: RunState, params: Vector, facts: dict[str, str]) -> None:
    """The model with these weights, one of the run, as it takes raw units."""
    from edgefl.delivery.deploy import save_onnx  # noqa: PLC0415 - onnxruntime only when there is a model to write

    shown = job.test if job.test is not None else job.public
    model, about = jobs.in_force(job, run_state).model, (job.run.task.model, job.sample, job.outputs, job.run.run.seed)
    x = shown.x[:SHOWN] if len(shown) else made_up(model, job.sample, tokens=reads_tokens(job))
    graphs = job.graphs or export_graphs(*about, like=x, form=job.form)
    gap = save_onnx(path, unpack(graphs), model, params, x=x, facts=facts, form=job.form)
    log.info("exported path=%s largest_difference=%.1e", path, gap)
