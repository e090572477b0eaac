"""What runs and the server's disk tell alerts: read from the folders of runs that work, each time only what is new."""

import shutil
from pathlib import Path

from coordinator.durable import journal
from coordinator.durable.run_history import Follower
from edgefl.base.errors import StoreError
from edgefl.base.events import Evaluated, Fact, Round, Waiting
from edgefl.server.decide.accuracy import DevicesScored
from edgefl.server.shell.alerts import Looked, RunPlace, RunStory
from edgefl.system.disk import FolderDisk

ACCURACY = "accuracy"


class RunStories:
    """Follows the runs that work; `folder` is where the server keeps its state. Used by one thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._followed: dict[str, _FollowedRun] = {}

    def look(self, places: tuple[RunPlace, ...]) -> Looked:
        """What is new; a run that cannot be read now is read at the next look."""
        names = {place.name for place in places}
        self._followed = {name: one for name, one in self._followed.items() if name in names}
        return Looked(tuple(self._story(place) for place in places), self._free())

    def _story(self, place: RunPlace) -> RunStory:
        run = self._followed.setdefault(place.name, _FollowedRun(Path(place.folder) / place.name))
        scored = tuple(
            DevicesScored(fact.at, place.fleet, place.series, place.name, fact.round, scores)
            for fact in run.look()
            if isinstance(fact, Evaluated) and (scores := _accuracies(fact))
        )
        return RunStory(place.name, run.moved, run.waiting, scored)

    def _free(self) -> float | None:
        try:
            return float(shutil.disk_usage(self.folder).free)
        except OSError:
            return None


class _FollowedRun:
    """One run's folder."""

    def __init__(self, folder: Path) -> None:
        self._disk = FolderDisk(folder)
        self._follower = Follower(self._disk)
        self.moved, self.waiting = 0.0, ""

    def look(self) -> list[Fact]:
        try:
            facts, anew = self._follower.look() if journal.exists(self._disk) else ([], False)
        except (StoreError, OSError):  # its coordinator has just begun it
            return []
        if anew:
            self.moved, self.waiting = 0.0, ""
        for fact in facts:
            match fact:
                case Round(at=at):
                    self.moved, self.waiting = max(self.moved, at), ""
                case Waiting(reason=reason):
                    self.waiting = reason
        return facts


def _accuracies(fact: Evaluated) -> dict[str, float]:
    own = fact.per_device or {}
    return {device: float(figures[ACCURACY]) for device, figures in own.items() if figures.get(ACCURACY) is not None}
