"""What goes with `algorithm.optimiser`, `algorithm.lr_schedule` and `task.augment`."""

from dataclasses import replace

from edgefl.base.errors import ConfigError
from edgefl.learn.contract import Algorithm
from edgefl.learn.privacy.private import Private
from edgefl.learn.training.local import LocalTraining


def check(algorithm: Algorithm, *, augmented: bool) -> None:
    """Nothing, if this algorithm can be trained so; otherwise a ConfigError that says why not."""
    if not isinstance(algorithm, LocalTraining):
        return
    if algorithm.augment and not augmented:
        raise ConfigError("algorithm.augment: how samples are changed is about data; say it in task.augment")
    if augmented and isinstance(algorithm, Private) and algorithm.privacy is not None:
        raise ConfigError("task.augment: what [privacy] promises is about samples as they are; leave one of them out")
    _check_optimiser(algorithm, algorithm.name)
    if algorithm.lr_schedule is not None and replace(algorithm, lr=algorithm.lr / 2).stages() != algorithm.stages():
        raise ConfigError(
            f"algorithm.lr_schedule: the coordinator's half of '{algorithm.name}' counts with algorithm.lr, which must"
            " stay what it is; leave the schedule out"
        )


def _check_optimiser(training: LocalTraining, name: str) -> None:
    optimiser = training.optimiser
    if optimiser is None:
        return
    if optimiser.nesterov and not (optimiser.name == "sgd" and training.momentum):
        raise ConfigError("algorithm.optimiser: nesterov is of 'sgd' with a momentum; set algorithm.momentum too")
    if optimiser.name != "sgd" and training.momentum:
        raise ConfigError(
            f"algorithm.momentum = {training.momentum:g} is of sgd, and algorithm.optimiser is '{optimiser.name}',"
            " whose own is beta1; set the momentum to 0"
        )
    if optimiser.plain:
        return
    if isinstance(training, Private) and training.privacy is not None:
        raise ConfigError("algorithm.optimiser: what [privacy] promises was shown for plain descent; leave it out")
    if training.rule() is None and not training.traits.any_optimiser:
        raise ConfigError(
            f"algorithm.optimiser = '{optimiser.name}': the steps of '{name}' are its own, of plain descent; leave it"
            " out"
        )
