"""`guards.trust = "majority"`: the ready defence for fleets that are not one's own.

    norm_clip ─▶ trimmed_mean, where `mean` stood ─▶ momentum ─▶ the rest

No answer is longer than the usual one of its round, each has one vote, and of each number the ends do not count. Such
steps are short, and attackers pull them back: momentum makes up for both. It was chosen by measuring, which is told in
docs/results/robustness.md.
"""

from collections.abc import Sequence

from edgefl.aggregation import Mean, Momentum
from edgefl.contract import Outvoting, Stage, Stepping, Summing
from edgefl.errors import ConfigError
from edgefl.robust.norm_clip import NormClip
from edgefl.robust.trimmed_mean import TrimmedMean

SHARE, BETA = 0.1, 0.8


def majority(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """These stages with the defence around the one that makes the step; a ConfigError where it would not hold."""
    for stage in stages:
        if isinstance(stage, Outvoting) and stage.outvotes:
            raise ConfigError(
                f"guards.trust = 'majority' and aggregation '{stage.name}' are two defences; leave one of them out"
            )
        if isinstance(stage, Summing) and stage.individual:
            raise ConfigError(
                f"guards.trust = 'majority' would show every device to '{stage.name}', which lets each of them object;"
                " put [[aggregation]] name = 'multi_krum' before it instead, which hands on who is believed"
            )
    voting = [TrimmedMean(share=SHARE) if isinstance(stage, Mean) else stage for stage in stages]
    makers = [i for i, stage in enumerate(voting) if isinstance(stage, Stepping) and stage.makes_step]
    after = makers[-1] + 1 if makers else 0
    momentum = () if any(isinstance(stage, Momentum) for stage in stages) else (Momentum(beta=BETA),)
    return NormClip(), *voting[:after], *momentum, *voting[after:]
