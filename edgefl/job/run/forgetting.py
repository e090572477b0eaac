"""Where a round forgets: while devices train, or when their models are merged (Flashback, figure 1).

Told with `run.forgetting`; it costs one evaluation per device and round.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgefl.base.vector import Array
from edgefl.learn.contract import Update
from edgefl.learn.evaluation import metrics

if TYPE_CHECKING:
    from edgefl.job.run.job import Job, RunState  # which evaluates: it must not be needed to be imported

Accuracies = Iterator[Array]
Shares = dict[str, Any]  # the two fields of a round that tell it
UNKNOWN: Shares = {
    "local_forgetting": None,
    "aggregation_forgetting": None,
}  # not measured


def of_round(job: "Job", before: "RunState", updates: Mapping[str, Update], after: "RunState") -> Shares:
    """What a round's report says about it: nothing, unless the run asks for it."""
    if not job.run.run.forgetting:
        return {}
    return shares(before, list(local_accuracies(job, before, updates)), after)


def local_accuracies(job: "Job", before: "RunState", updates: Mapping[str, Update]) -> Accuracies:
    """The accuracy per class of every device's own model, one by one."""
    for _, update in sorted(updates.items()):  # by device, as everywhere: the mean is the same to the last bit
        if job.test is not None:
            yield metrics.evaluate(job.model, before.params + update.delta, job.test, job.loss).per_class


def shares(before: "RunState", local: Sequence[Array], after: "RunState") -> Shares:
    """Local and aggregation forgetting, from the accuracies of the devices' models."""
    if not local or before.evaluation is None or after.evaluation is None:
        return UNKNOWN
    return {
        "local_forgetting": metrics.local_forgetting(before.evaluation.per_class, local),
        "aggregation_forgetting": metrics.aggregation_forgetting(local, after.evaluation.per_class),
    }
