"""Which server stages go with which device half, where it can be known before a run begins.

A free round asks no device. An algorithm has such rounds (`free_rounds`), one stage makes the model's step in them
(`makes_free_rounds`), and each other stage says whether it has something to do without devices (`without_devices`).

A stage that outvotes single devices (`Outvoting`) must come first. Three kinds of other stages would let those devices
in again: one that looks at the answers before it, one that relies on a claim without a vote (`believes`), and one that
makes the step anew after it (`makes_step`).
"""

from collections.abc import Sequence

from edgefl.base.errors import ConfigError
from edgefl.learn.algorithms.gradma import Memory
from edgefl.learn.contract import Algorithm, Outvoting, Stage, traits_of


def check(algorithm: Algorithm, stages: Sequence[Stage]) -> None:
    """Nothing, if these stages can follow this device half; otherwise a ConfigError that says what can."""
    free = traits_of(algorithm).free_rounds
    makers = [stage.name for stage in stages if traits_of(stage).makes_free_rounds]
    if makers and not free:
        raise ConfigError(
            f"aggregation '{makers[0]}' would throw away what the devices of '{algorithm.name}' train in every second"
            f" round; use it with an algorithm that asks no device then (algorithm.name = 'upcycled'), or take 'mean'"
        )
    if not free:
        return
    if not makers:
        raise ConfigError(
            f"algorithm '{algorithm.name}' asks no device in every second round, and no stage of [[aggregation]] makes"
            " a step then; put 'upcycle' where 'mean' would stand, or set algorithm.even = 'device'"
        )
    for stage in stages:
        if stage.name not in makers and not traits_of(stage).without_devices:
            raise ConfigError(
                f"aggregation '{stage.name}' needs answers, and algorithm '{algorithm.name}' asks no device in every"
                " second round; leave the stage out, or set algorithm.even = 'device' with 'mean' in front"
            )


def check_memory(stages: Sequence[Stage], cohort: int) -> None:
    """Nothing, if a memory of devices holds all that may answer in one round; otherwise a ConfigError."""
    for stage in stages:
        if isinstance(stage, Memory) and 0 < stage.size < cohort:
            raise ConfigError(
                f"a memory of {stage.size} devices is smaller than rounds.cohort = {cohort}; raise algorithm.memories"
                f" (of an aggregation: size) to at least {cohort}, or set 0 for plain momentum"
            )


def check_votes(stages: Sequence[Stage], cohort: int, late: str) -> None:
    """Nothing, if no device gets past the stages that outvote single ones; otherwise a ConfigError that says how."""
    votes = [i for i, stage in enumerate(stages) if isinstance(stage, Outvoting)]
    if not votes:
        return
    last = stages[votes[-1]]
    if votes != list(range(len(votes))):
        raise ConfigError(
            f"aggregation '{last.name}' comes too late: what stands before it works on answers before"
            f" any vote; put '{last.name}' first, in the place of 'mean'"
        )
    for stage in stages:
        if believes := traits_of(stage).believes:
            raise ConfigError(
                f"aggregation '{last.name}' votes on updates, and '{stage.name}' believes {believes}; choose an"
                " algorithm without it (fedavg, fedprox, fedgc, gradma), or leave the vote to [guards]"
            )
    step = any(traits_of(stages[i]).makes_step for i in votes)
    behind = [stage.name for stage in stages[len(votes) :] if traits_of(stage).makes_step]
    if step and behind:
        raise ConfigError(
            f"aggregation '{behind[0]}' would throw away the step that '{last.name}' makes; leave '{behind[0]}' out"
        )
    if not step and not behind:
        raise ConfigError(f"aggregation '{last.name}' makes no step of the updates it changes; put 'mean' behind it")
    if late == "memory":
        raise ConfigError(
            f"rounds.late = 'memory' would show late answers past the vote of '{last.name}'; set 'drop' or 'discount'"
        )
    for stage in stages:
        if isinstance(stage, Outvoting) and stage.needs(cohort) > cohort:
            raise ConfigError(
                f"aggregation '{stage.name}' needs at least {stage.needs(cohort)} answers for its setting, and"
                f" rounds.cohort = {cohort}; ask more devices, or lower aggregation.share"
            )
