"""What a run cannot have beside a transform that hides single updates: the coordinator has their sum, and nothing else.

Whatever stands between that transform and the stages works on the sum, so it must not need single updates. Whatever
stands between devices and that transform must leave a sum as it is. The stages have one answer that speaks for all, as
a gateway's does.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgefl.base.errors import ConfigError
from edgefl.job.config.privacy import needs_individuals, on_single_updates
from edgefl.learn.contract import Stage, traits_of

if TYPE_CHECKING:
    from edgefl.job.config.schema import RunFile


def check(run: "RunFile", stages: Sequence[Stage]) -> None:
    """Raise `ConfigError` if a transform hides single updates from what needs them, and name both."""
    for at, hiding in enumerate(run.transforms):
        if not hiding.hides:
            continue
        in_front = [transform.name for transform in run.transforms[:at] if transform.needs_single]
        if hungry := [*in_front, *on_single_updates(stages, run.rounds.late), *_more(run, stages)]:
            verb = "needs" if len(hungry) == 1 else "need"
            raise ConfigError(
                f"{hiding.name} hides single updates, and {', '.join(hungry)} of this run {verb} them; leave one or the"
                " other out"
            )
        if lossy := [transform.name for transform in run.transforms if not transform.commutes]:
            raise ConfigError(
                f"{hiding.name} adds updates up before they are read, and {', '.join(lossy)} changes what their sum is;"
                " leave one or the other out"
            )


def _more(run: "RunFile", stages: Sequence[Stage]) -> list[str]:
    """Return what else needs single updates, besides the stages that look at them."""
    apart = [f"stage '{s.name}'" for s in stages if not needs_individuals(s) and not traits_of(s).nests]
    keys = {
        "rounds.mode = 'buffered'": run.buffered,  # each answer weighs what its age leaves of it
        "run.forgetting = true": run.run.forgetting,  # each device's own model is evaluated
        f"guards.speaks_for = {run.guards.speaks_for}": run.guards.speaks_for > 1,  # a gateway adds up its own site
    }
    return [*apart, *(key for key, needs in keys.items() if needs)]
