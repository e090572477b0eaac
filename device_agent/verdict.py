"""Why a training did not come to its end: what this device's operator is told, and what others may know."""

import traceback
from dataclasses import dataclass

from edgefl.errors import Diverged, EdgeflError, RemoteError


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is said of it."""

    reason: str
    told: str  # to others: without values of the device's data
    mistake: bool = False  # somebody's configuration is wrong
    trace: str = ""  # of what nobody expected, for the device's own log


class Undone(Exception):  # noqa: N818 - it was judged where it happened
    """A training elsewhere failed."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.reason)
        self.verdict = verdict


def judged(error: Exception) -> Verdict:
    """What to say of an error; a model or data set of the user's may raise anything."""
    match error:
        case RemoteError():  # of this task alone: the next one may be better
            return Verdict(error.told, error.told)
        case Diverged():
            return Verdict(str(error), error.told)
        case EdgeflError():
            return Verdict(str(error), error.told, mistake=True)
    kind = type(error).__name__
    brief = f"its training ended with a {kind}, of which the device's own log says more"  # it may quote samples
    return Verdict(f"{kind}: {error}", brief, trace="".join(traceback.format_exception(error)))
