"""TensorBoard: event files with a curve for each figure of a round, written by its own package, without torch."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from edgefl.base.events import Evaluated, Evaluating, Fact, Round, Started
from edgefl.watch.exporters.progress_file import ProgressFile
from edgefl.watch.exporters.scalars import scalars

PACKAGE = "tensorboard"


class TensorBoardFiles:
    """A folder for each run, `NAME-ID`, so that several can be laid over each other."""

    wants: ClassVar[tuple[type[Fact], ...]] = (Evaluating, Round, Evaluated)

    def __init__(self, started: Started, folder: Path) -> None:
        from tensorboard.summary import Writer  # noqa: PLC0415 - only where it is configured

        path = folder / f"{started.run}-{started.run_id[:8]}"
        self.exported = ProgressFile(path)
        self.class_names: Sequence[str] | None = None
        self.writer = Writer(str(path))

    def __call__(self, fact: Fact) -> None:
        match fact:
            case Evaluating(class_names=names):
                self.class_names = names
            case Round() | Evaluated() if not self.exported.has(fact):
                for name, value in scalars(fact, self.class_names).items():
                    self.writer.add_scalar(name, value, fact.round, wall_time=fact.at)
                self.writer.flush()
                self.exported.add(fact)

    def close(self) -> None:
        self.writer.close()
