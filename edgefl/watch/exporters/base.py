"""What an exporter is: it is told facts in a thread of its own, so a slow one does not hold up the run."""

from typing import ClassVar, Protocol, runtime_checkable

from edgefl.base.events import Fact


class Exporter(Protocol):
    """Is told the facts that it wants, one after another. What it raises is tried again with the same fact."""

    wants: ClassVar[tuple[type[Fact], ...]]

    def __call__(self, fact: Fact) -> None: ...

    def close(self) -> None:
        """Nothing comes any more; what is not sent yet should be."""
        ...


@runtime_checkable
class TimedExporter(Protocol):
    """An exporter that also has something to say when nothing happens."""

    def deadline(self) -> float | None:
        """When it wants to be woken, in seconds since 1970."""
        ...

    def woken(self, now: float) -> None: ...
