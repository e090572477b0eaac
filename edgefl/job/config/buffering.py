"""What goes with `rounds.mode = "buffered"`: keys, and algorithms whose answers may begin from different models."""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from edgefl.base.errors import ConfigError
from edgefl.learn.contract import Algorithm, Stage, traits_of

INSTEAD = {  # keys of synchronous rounds, and what is said instead of them
    "cohort": "rounds.concurrency says how many devices are at work at once",
    "quorum": "rounds.buffer says how many answers make a round",
    "over_select": "no device is waited for, so none has to be asked in reserve",
    "late": "rounds.staleness says how old an answer may be",
}
OWN = ("concurrency", "buffer", "staleness")
UNSAID = {
    "cohort": "rounds.cohort: say how many devices a round asks",
    "concurrency": "rounds.concurrency: say how many devices are at work at once",
}
TOO_MANY = {
    "quorum": "rounds.quorum = {} is larger than rounds.cohort = {}",
    "buffer": "rounds.buffer = {} is larger than rounds.concurrency = {}",
}


def check(rounds: BaseModel, algorithm: Algorithm, stages: Sequence[Stage], *, forgetting: bool) -> None:
    """Nothing, if these go together; otherwise a ConfigError that says what does."""
    table: dict[str, Any] = rounds.model_dump()
    given = {key for key, field in type(rounds).model_fields.items() if table[key] != field.default}
    if table["mode"] != "buffered":
        for key in OWN:
            if key in given:
                raise ConfigError(f"rounds.{key} is of rounds.mode = 'buffered'; set that too, or leave it out")
        return
    for key, instead in INSTEAD.items():
        if key in given:
            raise ConfigError(
                f"rounds.{key} is of rounds that wait; in rounds.mode = 'buffered' {instead}: leave it out"
            )
    things: list[tuple[str, Algorithm | Stage]] = [("algorithm", algorithm), *(("aggregation", one) for one in stages)]
    for what, thing in things:
        traits = traits_of(thing)
        if not traits.buffered:
            why = traits.one_model or "it does not say that it can (`Traits(buffered=True)`)"
            raise ConfigError(
                f"rounds.mode = 'buffered' merges answers that began from different models, and {what} '{thing.name}'"
                f" needs those of one: {why}; use fedavg, fedprox or fedavgm, or synchronous rounds"
            )
    _check_history(stages, table["staleness"])
    if forgetting:
        raise ConfigError(
            "run.forgetting = true compares every device's model with the one it began from, which in rounds.mode ="
            " 'buffered' may be long gone; leave one of them out"
        )


def ages_unused(mode: str, stages: Sequence[Stage]) -> str:
    """Return what to say of a run that waits for all, with a stage that is made for answers of different ages."""
    ageing = [stage.name for stage in stages if traits_of(stage).history is not None]
    if mode == "buffered" or not ageing:
        return ""
    return (
        f"aggregation '{ageing[0]}' is made for answers that are mixed in as they come, and rounds.mode = '{mode}'"
        " waits for all of a round; set rounds.mode = 'buffered' and rounds.buffer = 1"
    )


def _check_history(stages: Sequence[Stage], staleness: int) -> None:
    for stage in stages:
        history = traits_of(stage).history
        if history is not None and history < staleness:
            raise ConfigError(
                f"rounds.staleness = {staleness}: aggregation '{stage.name}' knows the models of {history}"
                " rounds; raise algorithm.history to it, or lower rounds.staleness"
            )
