"""What a simulated fleet has spent: the bill of the device that spent most.

On real devices each keeps its own ledger (`device_agent/durable/privacy_ledger.py`), which never leaves it.
"""

from collections.abc import Iterable
from math import isfinite
from typing import Any

from edgefl.base.vector import Layout, State
from edgefl.learn.contract import Algorithm
from edgefl.learn.privacy.noise import Price
from edgefl.learn.privacy.private import Private


def spending(algorithm: Algorithm, layout: Layout, devices: Iterable[tuple[int, State]]) -> dict[str, dict[str, Any]]:
    """`{"privacy": ...}` for the last word of a run, or nothing if it promises none; each device by samples and state.

    `epsilon` is an upper bound for every device, None where the noise is no secret; `as_published` is the paper's.
    """
    if not isinstance(algorithm, Private):
        return {}
    bills: list[tuple[Price, int]] = []
    for samples, state in devices:
        price = algorithm.price(1, samples, layout)  # the first round always costs
        if price is not None and "odd_updates" in state:
            bills.append((price, int(state["odd_updates"])))
    if not bills:
        return {}
    costs = [{"updates": updates, **price.of(updates)} for price, updates in bills]
    most = max(costs, key=lambda cost: (cost["epsilon"], cost["as_published"]))
    mechanism = bills[0][0].mechanism
    epsilon = most["epsilon"] if isfinite(most["epsilon"]) else None
    return {"privacy": {"mechanism": mechanism.mechanism, "noise": mechanism.noise, **most, "epsilon": epsilon}}
