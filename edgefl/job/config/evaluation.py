"""The `[evaluation]` table of a run file: who judges the model, how often, and when that ends the run."""

from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, Field

from edgefl.base.errors import ConfigError
from edgefl.job.config.strict import STRICT
from edgefl.learn.data.validation import Place, Validation

Judge: TypeAlias = Literal["coordinator", "devices", "both"]


class EvaluationSection(BaseModel):
    """Who judges the model: the coordinator on its test data, devices on data that they set aside, or both."""

    model_config = STRICT

    on: Judge | None = None  # unless said: the coordinator, or the devices where it has no data (task.data = "none")
    every: Annotated[int, Field(ge=1)] = 1  # the model of every so manieth round is evaluated, and the last one
    patience: Annotated[int, Field(ge=1)] | None = None  # end when no model was better for this number of rounds
    per_device: bool = False  # also tell each device's own figures, by name
    # A device with fewer samples set aside sends nothing; one with data of its own needs 10 whatever is said here.
    least: Annotated[int, Field(ge=1)] = 10
    held_back: Annotated[float, Field(gt=0, lt=1)] = 0.2  # share of each part of a divided set, in a trial
    beside_privacy: bool = False  # send counts although [privacy] does not cover them
    # Simulation only, to choose settings by: models are judged by this share of each device's training data, the test
    # data are left alone. `edgefl sweep` sets it.
    validation: Annotated[float, Field(gt=0, lt=1)] | None = None
    validation_from: Place = "devices"  # or "public": from the public data at the coordinator

    def judge(self, *, data: bool, private: bool) -> Judge:
        """Who judges a run whose coordinator has data, or not, and which promises privacy, or not."""
        if self.on is not None:
            return self.on
        return "coordinator" if data or (private and not self.beside_privacy) else "devices"

    def cut(self, judge: Judge) -> Validation | None:
        """What is cut from the training data to judge by, instead of the test data."""
        if self.validation is None:
            return None
        return Validation(self.validation, self.validation_from, None if judge == "coordinator" else self.held_back)


def decided_by_test_data(evaluation: EvaluationSection, judge: Judge, **targets: float | None) -> str:
    """What to say of a simulation whose test data decide when it ends, beside judging it; empty where they do not."""
    if judge == "devices" or evaluation.validation is not None:
        return ""
    given = {"evaluation.patience": evaluation.patience, **{f"run.{key}": value for key, value in targets.items()}}
    keys = " and ".join(key for key, value in given.items() if value is not None)
    return keys and (
        f"{keys}: the test data decide when the run ends, so that its scores on them are too good;"
        " set evaluation.validation = 0.2 to decide by a part of the training data (in a fleet: evaluation.on ="
        " 'devices', by what devices set aside)"
    )


def own_models_unjudged(name: str, judge: Judge) -> str:
    """Return what to say of a run whose devices have models of their own, which are not evaluated."""
    if judge != "coordinator":
        return ""
    return (
        f"algorithm.name = '{name}' leaves devices models of their own, and only the shared one is judged; set"
        " evaluation.on = 'devices' (or 'both') to judge theirs on their own test data"
    )


def check(evaluation: EvaluationSection, *, data: bool, private: bool, forgetting: bool) -> None:
    """Refuse what does not go together."""
    on = evaluation.on
    if evaluation.validation is not None and not data:
        raise ConfigError("evaluation.validation cuts a part from the training data, and task.data = 'none' has none")
    if on in ("devices", "both") and private and not evaluation.beside_privacy:
        raise ConfigError(
            f"evaluation.on = '{on}': devices would send counts of their predictions, which [privacy] does not cover;"
            " leave it out, or set evaluation.beside_privacy = true to send them all the same"
        )
    if on in ("coordinator", "both") and not data:
        raise ConfigError(
            f"evaluation.on = '{on}', but with task.data = 'none' the coordinator has nothing to evaluate on;"
            " set evaluation.on = 'devices', or name its data"
        )
    if forgetting and evaluation.every > 1:
        raise ConfigError(
            f"run.forgetting = true compares each model with the one before, and evaluation.every = {evaluation.every}"
            " leaves some out; set it to 1"
        )
    if on == "devices" and forgetting:
        raise ConfigError(
            "run.forgetting = true compares models on the coordinator's test data, and evaluation.on = 'devices' leaves"
            " these alone; set evaluation.on = 'both'"
        )
