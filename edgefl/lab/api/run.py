"""`edgefl.Run`: a run described once, to be played, compared, swept, or written down for a coordinator."""

from pathlib import Path
from typing import Any

from typing_extensions import Unpack

from edgefl.base.errors import ConfigError
from edgefl.job.config.toml_text import table, written
from edgefl.lab.api.compared import Comparison
from edgefl.lab.api.comparing import compare
from edgefl.lab.api.data import DataLike
from edgefl.lab.api.description import Description, Setup, described
from edgefl.lab.api.history import History
from edgefl.lab.api.keywords import explained
from edgefl.lab.api.simulating import simulate
from edgefl.lab.api.sweeping import Sweep, sweep
from edgefl.learn.models.user_networks import ModelLike
from edgefl.system import store


class Run:
    """What `edgefl.simulate` is told about a run, to be used again; nothing happens until it is played.

    >>> import edgefl
    >>> run = edgefl.Run("softmax", "digits", fleet=4, rounds=2)
    >>> run.simulate(algorithm="fedprox:mu=0.1").name
    'run'
    >>> sorted(run.compare(algorithms=["fedavg", "scaffold"], progress=False).histories)
    ['fedavg', 'scaffold']
    >>> run.tables()["task"]["model"]
    'softmax'
    """

    @explained
    def __init__(self, model: ModelLike | None = None, data: DataLike | None = None, **run: Unpack[Setup]) -> None:
        self._description = Description(model=model, data=data, **run)

    def simulate(self, **more: Any) -> History:  # Any: checked there
        """`edgefl.simulate` of this run; what is given here goes over it."""
        return simulate(**{**self._description, **more})

    def compare(self, **more: Any) -> Comparison:  # Any: checked there
        """`edgefl.compare` on this run: `algorithms`, `seeds`, ..."""
        return compare(**{**self._description, **more})

    def sweep(self, **more: Any) -> Sweep:  # Any: checked there
        """`edgefl.sweep` on this run: `algorithms`, `grid`, ..."""
        return sweep(**{**self._description, **more})

    def tables(self) -> dict[str, Any]:  # Any: whatever TOML can say
        """The run file that it comes to, without what is as ever."""
        with described(self._description) as run:
            tables: dict[str, Any] = run.file.model_dump(mode="json", exclude_defaults=True, exclude_none=True)
            return tables

    def write(self, path: str | Path) -> Path:
        """Write it as a run file, which `edgefl coordinator start` and `edgefl simulate` take; gives back the path."""
        with described(self._description) as run:
            if stuck := run.only_here:
                raise ConfigError(
                    f"a run file cannot hold {stuck[0].partition(':')[2]}, which only this process has: put it into a"
                    " module (data into a file) and give its name"
                )
        tables = self.tables()
        several = {key: value for key, value in tables.items() if isinstance(value, list)}  # stand before all tables
        lines = [f"{key} = {written(value)}\n" for key, value in several.items()]
        lines += [table(key, value) for key, value in tables.items() if key not in several]
        store.write_atomically(Path(path), "\n".join(lines).encode(), private=False)
        return Path(path)
