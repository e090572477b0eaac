"""Weights & Biases: on disk for `wandb sync`, or online. Of this machine its package tells the host's name, no more."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from edgefl.base.events import Done, Evaluated, Evaluating, Fact, Failed, Round, Started
from edgefl.job.config.export import Wandb
from edgefl.watch.exporters.progress_file import ProgressFile
from edgefl.watch.exporters.scalars import FLEET, scalars

PACKAGE = "wandb"
ROUND, FLEET_ROUND = "round", f"{FLEET}round"  # what curves are drawn over: its own steps only grow


class WandbRun:
    """One of its runs for each of ours, under our id; a restart goes on with it."""

    wants: ClassVar[tuple[type[Fact], ...]] = (Evaluating, Round, Evaluated, Done, Failed)

    def __init__(self, started: Started, settings: Wandb, folder: Path, parameters: Mapping[str, Any]) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb  # noqa: PLC0415 - only where it is configured

        folder.mkdir(parents=True, exist_ok=True)
        self.exported = ProgressFile(folder)
        self.class_names: Sequence[str] | None = None
        self.failed = False
        quiet = wandb.Settings(
            console="off",
            silent=True,
            disable_git=True,
            save_code=False,
            x_disable_stats=True,
            x_disable_meta=True,
            x_save_requirements=False,
        )
        self.run: Any = wandb.init(  # Any: what it gives depends on its version
            project=settings.project,
            entity=settings.entity,
            name=started.run,
            id=started.run_id,
            resume="allow",
            mode=settings.mode,
            dir=str(folder),
            config=dict(parameters),
            settings=quiet,
        )
        self.run.define_metric("*", step_metric=ROUND)
        self.run.define_metric(f"{FLEET}*", step_metric=FLEET_ROUND)

    def __call__(self, fact: Fact) -> None:
        match fact:
            case Evaluating(class_names=names):
                self.class_names = names
            case Round(round=round) | Evaluated(round=round) if not self.exported.has(fact):
                axis = FLEET_ROUND if isinstance(fact, Evaluated) else ROUND
                self.run.log({**scalars(fact, self.class_names), axis: round})
                self.exported.add(fact)
            case Done(model_sha256=digest):
                self.run.summary["model_sha256"] = digest
            case Failed():
                self.failed = True

    def close(self) -> None:
        import wandb  # noqa: PLC0415

        self.run.finish(exit_code=int(self.failed))
        wandb.teardown()  # its other process still writes when `finish` comes back
