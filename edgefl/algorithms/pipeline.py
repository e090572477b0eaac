"""Which server stages go with which device half, where it can be known before a run begins.

A free round asks no device. An algorithm has such rounds (`free_rounds`), one stage makes the model's step in them
(`makes_free_rounds`), and each other stage says whether it has something to do without devices (`without_devices`).
"""

from collections.abc import Sequence

from edgefl.contract import Algorithm, Lasting, Pushing, Resting, Stage
from edgefl.errors import ConfigError


def check(algorithm: Algorithm, stages: Sequence[Stage]) -> None:
    """Nothing, if these stages can follow this device half; otherwise a ConfigError that says what can."""
    free = isinstance(algorithm, Resting) and algorithm.free_rounds
    makers = [stage.name for stage in stages if isinstance(stage, Pushing) and stage.makes_free_rounds]
    if makers and not free:
        raise ConfigError(
            f"aggregation '{makers[0]}' would throw away what the devices of '{algorithm.name}' train in every second"
            f" round; use it with an algorithm that asks nobody then (algorithm.name = 'upcycled'), or take 'mean'"
        )
    if not free:
        return
    if not makers:
        raise ConfigError(
            f"algorithm '{algorithm.name}' asks nobody in every second round, and no stage of [[aggregation]] makes"
            " a step then; put 'upcycle' where 'mean' would stand, or set algorithm.even = 'device'"
        )
    for stage in stages:
        lasting = isinstance(stage, Lasting) and stage.without_devices
        if stage.name not in makers and not lasting:
            raise ConfigError(
                f"aggregation '{stage.name}' needs answers, and algorithm '{algorithm.name}' asks nobody in every"
                " second round; leave the stage out, or set algorithm.even = 'device' with 'mean' in front"
            )
