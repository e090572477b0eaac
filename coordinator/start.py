"""From a run file to a finished run: broker, transport, run folder, coordinator, results."""

import json
import logging
import signal
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coordinator import checkpoint
from coordinator.service import Coordinator
from coordinator.view import View
from edgefl import job as jobs
from edgefl.config import RunFile
from edgefl.errors import StoreError
from edgefl.job import Course, Job
from edgefl.protocol import broker
from edgefl.protocol.address import Address, parse, reachable
from edgefl.protocol.mqtt import MqttTransport, chosen_tls

log = logging.getLogger(__name__)

METRICS = "metrics.jsonl"
MODEL = "model.onnx"


@dataclass(frozen=True, slots=True)
class Results:
    """Where everything is when a run has ended."""

    course: Course
    folder: Path

    @property
    def files(self) -> dict[str, Path]:
        """The run's products, by what they are."""
        names = {"checkpoint": checkpoint.NAME, "metrics": METRICS, "ONNX model": MODEL}
        return {what: self.folder / name for what, name in names.items() if (self.folder / name).exists()}


def coordinate(
    run: RunFile,
    root: Path | None,
    view: View,
    ready: Callable[[Address], AbstractContextManager[Any]] | None = None,
) -> Results:
    """Run it to its end; `ready` hears the broker's address as soon as devices may connect."""
    with ExitStack() as until_done:
        address = _broker(run, until_done)
        folder = fresh_folder(run.run.folder / run.run.name)
        (folder / "run.json").write_text(run.model_dump_json(indent=2))
        metrics = until_done.enter_context((folder / METRICS).open("a", buffering=1, encoding="utf-8"))

        def tell(event: dict[str, Any]) -> None:
            if event["event"] in {"round", "done"}:
                metrics.write(json.dumps(event) + "\n")
            view.tell(event)

        transport = MqttTransport(address, f"coordinator-{uuid.uuid4().hex[:8]}", tls=chosen_tls(run.broker.tls))
        serving = Coordinator(run, transport, lambda: jobs.prepare(run, root)[0], folder=folder, tell=tell)
        until_done.callback(_stop_on_signals(serving))
        if ready:
            until_done.enter_context(ready(address))
        with view.watching(serving, str(address)):
            course = serving.run()
        if serving.job:
            _export(folder / MODEL, serving.job, course)
        return Results(course, folder)


def fresh_folder(folder: Path) -> Path:
    """An empty folder of this name; what a former run left there moves aside."""
    if (folder / METRICS).exists():
        number = 1
        while folder.with_name(f"{folder.name}~{number}").exists():
            number += 1
        folder.rename(folder.with_name(f"{folder.name}~{number}"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{folder}: cannot be made ({error.strerror}); choose another run.folder") from None
    return folder


def check_broker(run: RunFile) -> Address:
    """The broker's address, if it answers; one of our own answers when it is started."""
    address = parse(run.broker.url)
    if not address.embedded:
        reachable(address)
    return address


def _broker(run: RunFile, until_done: ExitStack) -> Address:
    address = check_broker(run)
    if not address.embedded:
        return address
    running = until_done.enter_context(broker.start())
    log.info("broker kind=%s address=%s", running.kind, running.address)
    return running.address


def _stop_on_signals(serving: Coordinator) -> Callable[[], None]:
    """Ctrl-C and SIGTERM end the run cleanly; gives back how to undo that."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda _s, _f: serving.stop()) for number in numbers}

    def undo() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    return undo


def _export(path: Path, job: Job, course: Course) -> None:
    from edgefl.models.deploy import save_onnx  # noqa: PLC0415 - onnx and torch only when there is a model to write

    shown = job.test if job.test is not None else job.public
    if len(shown):
        gap = save_onnx(path, job.run.task.model, job.model, course.params, shown.x[:64], job.classes)
        log.info("exported path=%s largest_difference=%.1e", path, gap)
