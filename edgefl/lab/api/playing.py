"""How the runs of a comparison or a sweep are played from Python: in this process, or in others."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from edgefl.base.errors import ConfigError
from edgefl.base.events import Done, Tell
from edgefl.job.config.schema import RunFile
from edgefl.lab.api.description import DescribedRun
from edgefl.lab.comparison import comparison
from edgefl.lab.comparison.preparing import Preparation, briefly
from edgefl.lab.comparison.progress import watching
from edgefl.learn.session_objects import only_here
from edgefl.system.locks import own


@contextmanager
def surroundings(
    base: DescribedRun, runs: Sequence[RunFile], workers: int, progress: bool | None, folder: str | Path | None
) -> Iterator[dict[str, Any]]:
    """Where and before whose eyes runs are played; a ConfigError if that cannot be."""
    stuck = [name for run in runs for name in only_here(run.model_dump())]
    if workers > 1 and stuck:
        raise ConfigError(
            f"workers = {workers} plays runs in other processes, which do not find {stuck[0].partition(':')[2]}: put it"
            " into a module and name it 'package.module:name', or leave workers out"
        )
    preparation = Preparation()  # of this call: what is only here may be something else in the next, by the same name
    with nullcontext() if folder is None else own(Path(folder), private=False):
        memory = None if folder is None else comparison.kept_in(Path(folder), base.root)
        unfinished = memory.unfinished if memory else None
        play = partial(comparison.played, prepare=preparation, unfinished=unfinished)
        yield {
            "workers": workers,
            "root": base.root,
            "memory": memory,
            "watching": None if progress is False else watching,
            "play": play if workers == 1 else None,
            "attempt": partial(_attempt, preparation) if workers == 1 else None,
        }


def _attempt(preparation: Preparation, run: RunFile, root: Path | None, tell: Tell) -> None:
    briefly(*preparation(run, root))
    tell(Done(run.run.name, "", 0))
