"""`guards.trust = "majority"`: the ready defence for a fleet whose devices belong to others.

    norm_clip ─▶ multi_krum ─▶ trimmed_mean ─▶ momentum ─▶ the rest
                 where `mean` stood; in cohorts of three or four: median

No answer is longer than the usual one of its round, each has one vote. Answers that are unlike all others do not
count; this keeps the model good. Of the rest, number by number, the largest and smallest do not count; this shuts the
back doors of a few attackers. Such steps are short, and attackers pull them back: momentum makes up for both. The
defence was chosen by measuring, on data and with seeds that nothing else is judged by: docs/results/robustness.md.

Multi-Krum needs five answers to find one that is odd. A cohort that can never have them gets the median, which outvotes
one of three; where a round of a larger one has too few, the median stands in for it, which is counted (`short`).
"""

from collections.abc import Sequence

from edgefl.base.errors import ConfigError
from edgefl.learn.aggregation import Mean, Momentum
from edgefl.learn.contract import Outvoting, Stage, traits_of
from edgefl.learn.robust.krum import MultiKrum
from edgefl.learn.robust.median import Median
from edgefl.learn.robust.norm_clip import NormClip
from edgefl.learn.robust.trimmed_mean import TrimmedMean

UNLIKE, ENDS, BETA = 0.1, 0.1, 0.8


def majority(stages: Sequence[Stage], cohort: int) -> tuple[Stage, ...]:
    """These stages with the defence around the one that makes the step; a ConfigError where it would not hold."""
    for stage in stages:
        if isinstance(stage, Outvoting):
            raise ConfigError(
                f"guards.trust = 'majority' and aggregation '{stage.name}' are two defences; leave one of them out"
            )
        if traits_of(stage).individual:
            raise ConfigError(
                f"guards.trust = 'majority' would show every device to '{stage.name}', which lets each of them object;"
                " put [[aggregation]] name = 'multi_krum' before it instead, which passes on the answers that it trusts"
            )
    voting = [each for stage in stages for each in (votes(cohort) if isinstance(stage, Mean) else (stage,))]
    makers = [i for i, stage in enumerate(voting) if traits_of(stage).makes_step]
    after = makers[-1] + 1 if makers else 0
    momentum = () if any(isinstance(stage, Momentum) for stage in stages) else (Momentum(beta=BETA),)
    return NormClip(), *voting[:after], *momentum, *voting[after:]


def votes(cohort: int) -> tuple[Stage, ...]:
    """Return the stages that make the step of this number of answers."""
    unlike = MultiKrum(share=UNLIKE)
    return (unlike, TrimmedMean(share=ENDS)) if unlike.needs(cohort) <= cohort else (Median(),)
