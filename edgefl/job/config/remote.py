"""The `[remote]` table of an agent file: what the fleet's operator may ask this device from afar."""

from typing import Literal, TypeAlias

from pydantic import BaseModel

from edgefl.job.config.strict import STRICT

Question: TypeAlias = Literal["doctor", "logs", "vitals"]
QUESTIONS: tuple[Question, ...] = ("doctor", "logs", "vitals")


class Remote(BaseModel):
    """The questions of `edgefl device NAME QUESTION` that are answered; no answer holds values of the data."""

    model_config = STRICT

    allow: tuple[Question, ...] = QUESTIONS  # doctor, logs (the last lines of the agent's log), vitals; []: none
