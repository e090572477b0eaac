"""Many answers as one: their weighted mean, with their weight, and all that they counted. Pure.

    sum of w_i d_i / sum of w_i   over all devices   =   sum of W_g m_g / sum of W_g   over gateways,
    with m_g the weighted mean behind gateway g, and W_g the weight of those behind it

So the coordinator's mean is the same as without gateways, but for rounding: the mean is made in float64 and rounded to
float32 once. What devices saw of the model adds up. Arrays beside the update are averaged like it; single numbers are
counters, which add up.
"""

from collections import Counter
from collections.abc import Mapping

import numpy as np

from edgefl.base.vector import Array
from edgefl.learn.contract import Counts, Seen, Update
from edgefl.learn.evaluation import fleet

_DELTA = ""  # which no array beside an update is called


def combined(updates: Mapping[str, Update]) -> Update:
    """The answers of these devices as one, added up by name: in which order they came changes nothing.

    One is opened after the other: of a thousand there is one in memory.
    """
    answers = [one for _, one in sorted(updates.items())]
    weight = float(sum(one.weight for one in answers))
    total, having = dict[str, Array](), Counter[str]()
    for one in answers:
        opened = one.opened()
        for name, array in {_DELTA: opened.delta, **opened.extra}.items():
            share = 1.0 if array.ndim == 0 else one.weight / weight
            part = np.float64(share) * array
            total[name] = part if name not in total else total[name] + part
            having[name] += 1
    first = answers[0].opened()
    rounded = {
        name: np.asarray(total[name]).astype(array.dtype)
        for name, array in {_DELTA: first.delta, **first.extra}.items()
        if having[name] == len(answers)
    }
    return Update(
        delta=rounded.pop(_DELTA),
        weight=weight,
        steps=sum(one.steps for one in answers),
        extra=rounded,
        seen=_seen([one.seen for one in answers if one.seen is not None]),
        devices=sum(one.devices for one in answers),
    )


def _seen(seen: list[Seen]) -> Seen | None:
    """What was seen of the model that came, and, if all who saw it trained one, of theirs."""
    if not seen:
        return None
    trained = [one.trained for one in seen]
    whole = [one for one in trained if one is not None]
    return Seen(_total([one.received for one in seen]), _total(whole) if len(whole) == len(seen) else None)


def _total(counts: list[Counts]) -> Counts:
    total = fleet.total(counts)
    return Counts(total.table.astype(np.int64), total.loss, total.sums)
