"""Why a training did not come to its end: what this device's operator is told, and what others may know."""

import traceback
from dataclasses import dataclass

from edgefl.base.errors import IN_THE_LOG, Diverged, EdgeflError, RemoteError, coded


@dataclass(frozen=True, slots=True)
class FailureReason:
    """What is said of it."""

    reason: str
    told: str  # to others: a text that is free of data, or a code that stands in the device's own log
    mistake: bool = False  # a configuration is wrong
    trace: str = ""  # of an unexpected error, for the device's own log

    @property
    def logged(self) -> str:
        """The reason, and what others were told where that is not the same: they may ask what it means."""
        return self.reason if self.told == self.reason else f"{self.reason} (the coordinator gets: {self.told})"


class TrainingError(Exception):
    """A training elsewhere failed; it was judged where it happened."""

    def __init__(self, verdict: FailureReason) -> None:
        super().__init__(verdict.reason)
        self.verdict = verdict


def judged(error: Exception) -> FailureReason:
    """What to say of an error; a model or data set of the user's may raise anything."""
    match error:
        case RemoteError():  # of this task alone: the next one may be better
            return FailureReason(f"{error.code}: {error}", error.told)
        case Diverged():
            return FailureReason(str(error), error.told)
        case EdgeflError():
            return FailureReason(str(error), error.told, mistake=True)
    told = f"{coded(error)}: {IN_THE_LOG}"
    return FailureReason(f"{type(error).__name__}: {error}", told, trace="".join(traceback.format_exception(error)))
