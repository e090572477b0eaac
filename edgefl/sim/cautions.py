"""What a run tells its reader once, before or while it is played, because it changes what its figures mean."""

import logging

from edgefl.base.events import Described, Evaluated, Fact, Round, Tell
from edgefl.job.config.schema import RunFile
from edgefl.learn.evaluation import wording

log = logging.getLogger(__name__)


def tell_cautions(run: RunFile) -> None:
    """Log what the run file itself shows, a line each."""
    for caution in run.cautions:
        log.warning("%s", caution)


def cautious(tell: Tell) -> Tell:
    """Return a `tell` that warns once each of updates, descriptions and evaluations that `[guards]` scaled down."""
    warned = set[type[Fact]]()

    def everybody(fact: Fact) -> None:
        caution = wording.guarded(fact) if isinstance(fact, Round | Described | Evaluated) else ""
        if caution and type(fact) not in warned:
            warned.add(type(fact))
            log.warning("%s", caution)
        tell(fact)

    return everybody
