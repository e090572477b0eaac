"""Which exporters a run file asks for, opened when the run starts and told of what happened before a restart."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from edgefl.base.errors import ConfigError
from edgefl.base.events import Evaluated, Fact, Round, Started
from edgefl.job.config.export import Export
from edgefl.watch.exporters import mlflow, tensorboard, wandb
from edgefl.watch.exporters.background import BackgroundExporter
from edgefl.watch.exporters.mlflow import MlflowRun
from edgefl.watch.exporters.tensorboard import TensorBoardFiles
from edgefl.watch.exporters.wandb import WandbRun
from edgefl.watch.exporters.webhooks import WebhookCaller

log = logging.getLogger(__name__)


class Exporters:
    """All exporters of a run; telling them never waits."""

    def __init__(
        self,
        export: Export,
        folder: Path,
        parameters: Mapping[str, Any],
        past: Callable[[], Iterable[Fact]] = tuple,
    ) -> None:
        check(export)
        self.export, self.folder, self.parameters = export, folder, parameters
        self.past = past
        self.asides: list[BackgroundExporter] = []

    def __call__(self, fact: Fact) -> None:
        if not isinstance(fact, Started) or self.asides:
            self._tell(fact)
            return
        self.asides = list(self._open(fact))
        self._tell(fact)
        for earlier in self.past() if self.asides else ():
            if isinstance(earlier, Round | Evaluated):  # each of them knows which rounds it has already
                self._tell(earlier)

    def close(self) -> None:
        """Let them finish, all at the same time."""
        for aside in self.asides:
            aside.end()
        for aside in self.asides:
            aside.close()

    def _tell(self, fact: Fact) -> None:
        for aside in self.asides:
            aside(fact)

    def _open(self, started: Started) -> Iterator[BackgroundExporter]:
        export, folder = self.export, self.folder
        if export.tensorboard:
            place = export.tensorboard.folder or folder / "tensorboard"
            yield BackgroundExporter("TensorBoard", TensorBoardFiles.wants, partial(TensorBoardFiles, started, place))
        if export.mlflow:
            make = partial(MlflowRun, started, export.mlflow, self.parameters)
            yield BackgroundExporter("MLflow", MlflowRun.wants, make)
        if export.wandb:
            run = partial(WandbRun, started, export.wandb, folder / "wandb", self.parameters)
            yield BackgroundExporter("W&B", WandbRun.wants, run)
        for number, hook in enumerate(export.webhooks, 1):
            if hook.shortened:
                log.warning(
                    "webhook %d is not called: its address is in the run file only, start the run by that", number
                )
                continue
            delivered = folder / f"webhook-{number}.json"
            caller = partial(WebhookCaller, started, hook, delivered)
            yield BackgroundExporter(f"webhook {number}", WebhookCaller.wants, caller)


def check(export: Export) -> None:
    """What cannot work is said before anything is started."""
    tables = (
        (export.tensorboard, tensorboard.PACKAGE),
        (export.mlflow, mlflow.PACKAGE),
        (export.wandb, wandb.PACKAGE),
    )
    for table, package in tables:
        if table is not None and find_spec(package) is None:
            raise ConfigError(
                f"[export.{package}] needs a package that is not installed: pip install 'edgefl[{package}]'"
            )
    for hook in export.webhooks:
        hook.address(), hook.key()


def flattened(table: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """The settings of a run file as one list, `algorithm.lr` and so on; what is not set is left out."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        name = f"{before}{key}"
        if isinstance(value, Mapping):
            flat |= flattened(value, f"{name}.")
        elif value is not None and value != []:
            flat[name] = value
    return flat
