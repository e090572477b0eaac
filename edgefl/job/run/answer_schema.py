"""What the answers of a job look like: found out by training twice on made-up samples, before a device is asked."""

import logging
from dataclasses import dataclass, field
from math import prod

import numpy as np

from edgefl.base import seeds
from edgefl.base.errors import EdgeflError, WireError
from edgefl.base.vector import Layout, State
from edgefl.job.run.job import Job, RunState
from edgefl.job.run.work import UNKNOWN
from edgefl.learn.contract import Budget, Site, Task
from edgefl.learn.data.generated import made_up
from edgefl.wire.codecs import Codec

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AnswerSchema:
    """The extra arrays an answer must have, and those it may have, with their shapes."""

    required: dict[str, tuple[int, ...]] = field(default_factory=dict)
    optional: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def check(self, extra: State) -> None:
        """Refuse arrays that no honest device sends, and the lack of those that every one sends."""
        allowed = {**self.optional, **self.required}
        for name, array in extra.items():
            if name not in allowed:
                raise WireError("update.extra", f"extra '{name}' is not part of this algorithm")
            if array.shape != allowed[name]:
                raise WireError("update.extra", f"extra '{name}' has shape {array.shape}, expected {allowed[name]}")
        for name in self.required:
            if name not in extra:
                raise WireError("update.extra", f"extra '{name}' is missing")

    @property
    def numbers(self) -> int:
        """How many numbers the extra arrays of an answer have at most."""
        return sum(prod(shape) for shape in {**self.optional, **self.required}.values())


def body_limit(answer_schema: AnswerSchema | None, layout: Layout, codec: Codec) -> int:
    """Bytes that the body of an answer may have, for a model of this layout whose updates travel by this codec."""
    if answer_schema is None:
        return UNKNOWN * 4 * layout.size + (1 << 20)
    return codec.most(layout) + 8 * answer_schema.numbers  # no type that may come beside is wider than eight bytes


def find(job: Job, run_state: RunState, told: State) -> AnswerSchema | None:
    """The job's pattern; None where made-up samples are not good enough for its algorithm, and nothing is checked."""
    like = job.public.x if job.test is None else job.test.x
    data = made_up(job.sample, job.classes, like, seed=0, name="pattern", targets=job.targets)
    site = Site(job.device_model, data, seeds.stream(0, "pattern"), job.loss)
    state: State = {}
    seen = []
    try:
        for round in (1, 2):
            task = Task(round, run_state.params, Budget(batches=1), told, run_state.params)
            update, state = job.algorithm.train(task, state, site)
            seen.append({name: np.shape(array) for name, array in update.extra.items()})
    except EdgeflError as error:
        log.info("answers are taken as they come: %s", error)
        return None
    first, second = seen
    return AnswerSchema(
        {name: shape for name, shape in second.items() if first.get(name) == shape}, {**first, **second}
    )
