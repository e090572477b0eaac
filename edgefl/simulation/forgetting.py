"""Where a round forgets: while devices train, or when their models are merged (Flashback, figure 1)."""

from collections.abc import Mapping

from edgefl import metrics
from edgefl.algorithms.base import Update
from edgefl.job import Course, Job


def shares(job: Job, before: Course, updates: Mapping[str, Update], after: Course) -> dict[str, float | None]:
    """Local and aggregation forgetting of a round; costs one evaluation per device. None where nobody trained."""
    found: dict[str, float | None] = {"local_forgetting": None, "aggregation_forgetting": None}
    if job.test is None or before.evaluation is None or after.evaluation is None or not updates:
        return found
    local = [
        metrics.evaluate(job.model, before.params + update.delta, job.test, job.loss).per_class
        for _, update in sorted(updates.items())  # by device, as everywhere: the mean is the same to the last bit
    ]
    found["local_forgetting"] = metrics.local_forgetting(before.evaluation.per_class, local)
    found["aggregation_forgetting"] = metrics.aggregation_forgetting(local, after.evaluation.per_class)
    return found
