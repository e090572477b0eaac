"""The `[privacy]` table of a run file: it becomes the algorithm's own field, or is refused by name.

    output      noise on the trained model            algorithms with a private version
    objective   a random tilt of the objective        algorithms with a private version
    secagg      secure aggregation                    always refused: this version does not offer it

On the wire, in the log and in a checkpoint there is one form: the algorithm's own field `privacy`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from pydantic import TypeAdapter, ValidationError

from edgefl.base.errors import ConfigError, nearest
from edgefl.base.validation_errors import explain
from edgefl.learn import losses
from edgefl.learn.algorithms import registry
from edgefl.learn.contract import Algorithm, Stage, traits_of
from edgefl.learn.privacy import linear
from edgefl.learn.privacy.noise import Objective, Output
from edgefl.learn.privacy.private import Private
from edgefl.learn.selection.base import LossBasedSelection, Selection

FIELD = "privacy"
SECAGG = "secagg"
MECHANISMS: Mapping[str, type[Any]] = {"output": Output, "objective": Objective}


def check(privacy: Mapping[str, Any], algorithm: Algorithm, stages: Sequence[Stage], late: str) -> None:
    """Nothing, if this mechanism goes with the rest of the run; otherwise a ConfigError that says with what it does."""
    mechanism = privacy.get("mechanism")
    if mechanism == SECAGG:
        raise ConfigError(_no_secagg(algorithm, stages, late))
    if not isinstance(mechanism, str) or mechanism not in MECHANISMS:
        raise ConfigError(f"privacy.mechanism = {mechanism!r} is not known; {nearest(str(mechanism), MECHANISMS)}")
    if not isinstance(algorithm, Private):
        raise ConfigError(
            f"privacy.mechanism = '{mechanism}': algorithm '{algorithm.name}' has no private version; use"
            f" {_private_ones()}, or leave [privacy] out"
        )
    if algorithm.privacy is not None:
        raise ConfigError(
            f"[privacy] and algorithm.{FIELD} both choose a mechanism ('{mechanism}' and"
            f" '{algorithm.privacy.mechanism}'); keep [privacy]"
        )
    kind = MECHANISMS[mechanism]
    try:
        TypeAdapter(kind).validate_python(dict(privacy))
    except ValidationError as error:
        raise ConfigError(
            f"privacy '{mechanism}': {explain(error, lambda _: [f.name for f in fields(kind)])}"
        ) from None


def check_statistics(describes: bool, weighs: bool) -> None:
    """Refuse what the proofs do not cover: sums over a device's data that leave it, and another loss."""
    if describes:
        raise ConfigError(
            "[privacy] bounds what leaves a device, and task.normalise = 'fleet' or task.class_weights = 'balanced' has"
            " it send sums over its data; scale features on the devices, and leave these keys out"
        )
    if weighs:
        raise ConfigError("[privacy] is proved for the plain loss; leave task.class_weights out")


def check_selection(chosen: Selection, algorithm: Algorithm) -> None:
    """Nothing, if devices of a private run are asked for nothing besides their update."""
    if isinstance(chosen, LossBasedSelection) and isinstance(algorithm, Private) and algorithm.privacy is not None:
        raise ConfigError(
            f"selection.name = '{chosen.name}' asks devices for their loss, which [privacy] does not cover; leave one"
            " of them out"
        )


def check_proof(algorithm: Algorithm, loss: str) -> None:
    """Nothing, if a proof covers this algorithm's mechanism with this loss, as far as a run file can tell."""
    if not isinstance(algorithm, Private) or not isinstance(algorithm.privacy, Objective):
        return
    linear.check_loss(losses.loss(loss))
    if not algorithm.mu:
        raise ConfigError(
            "privacy.mechanism = 'objective' needs algorithm.mu above 0: without it there is no proof; raise it, or use"
            " mechanism 'output'"
        )


def needs_individuals(stage: Stage) -> bool:
    """Whether a stage looks at single updates, not only at their sums; one that does not say is taken to."""
    return traits_of(stage).individual is not False


def on_single_updates(stages: Sequence[Stage], late: str) -> list[str]:
    """Return what of a run works on single updates, as messages name it."""
    kept = [] if late == "drop" else [f"rounds.late = '{late}'"]
    return [*(f"stage '{stage.name}'" for stage in stages if needs_individuals(stage)), *kept]


def _no_secagg(algorithm: Algorithm, stages: Sequence[Stage], late: str) -> str:
    """Why secure aggregation cannot be had here, and what can."""
    instead = f"use mechanism = 'output' with {_private_ones()}"
    hungry = on_single_updates(stages, late)
    if not hungry:
        return (
            f"privacy.mechanism = '{SECAGG}': this version does not offer secure aggregation yet, although algorithm"
            f" '{algorithm.name}' needs only sums; {instead}"
        )
    verb = "needs" if len(hungry) == 1 else "need"
    return (
        f"privacy.mechanism = '{SECAGG}' hides single updates, and {', '.join(hungry)} of this run {verb} them"
        f" (algorithm '{algorithm.name}'); nor does this version offer secure aggregation for plain sums yet: {instead}"
    )


def _has_private_version(kind: type[Any]) -> bool:
    return FIELD in {f.name for f in fields(kind)}


def _private_ones() -> str:
    """The algorithms that can be made private, as a run file names them."""
    known = registry.algorithm_registry()
    return " or ".join(f"algorithm.name = '{name}'" for name in known if _has_private_version(known[name]))
