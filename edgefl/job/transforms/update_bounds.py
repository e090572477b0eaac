"""The caps of [guards] as a transform: its coordinator half bounds each answer by the others (learn/robustness.py)."""

from dataclasses import dataclass, replace

from edgefl.job.transforms.transform import AnswerSet, CoordinatorContext, OnNumbers
from edgefl.learn import robustness
from edgefl.learn.robustness import Caps


@dataclass(frozen=True, kw_only=True)
class UpdateBounds(OnNumbers):
    """No answer weighs more, or is longer, than others allow. The medians are part of the run's state."""

    name: str = "guards.bounds"
    needs_single: bool = True
    commutes: bool = False
    caps: Caps

    def coordinator(self, answers: AnswerSet, context: CoordinatorContext) -> AnswerSet:
        known, trainable = answers.states.get(robustness.NAME, {}), context.layout.trainable
        within = robustness.bound(answers.updates, answers.late, known, trainable=trainable, caps=self.caps)
        states = {**answers.states, robustness.NAME: within.state} if within.state else answers.states
        return replace(answers, updates=within.updates, late=within.late, states=states, bounded=within.changed)
