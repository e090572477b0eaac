"""What a run tells its reader once, while it is played, because it changes what its figures mean."""

import logging

from edgefl.base.events import Fact, Round, Tell
from edgefl.learn.evaluation import wording

log = logging.getLogger(__name__)


def cautious(tell: Tell) -> Tell:
    """Return a `tell` that warns of the first round in which `[guards]` scaled answers down, and passes all on."""
    warned = False

    def everybody(fact: Fact) -> None:
        nonlocal warned
        if not warned and isinstance(fact, Round) and (caution := wording.guarded(fact)):
            warned = True
            log.warning("%s", caution)
        tell(fact)

    return everybody
