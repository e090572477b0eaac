"""What private updates have cost the data of this device: one event for each that was computed, whatever became of it.

An update that was refused, lost or thrown away used the data all the same, and one that is trained again after a crash
has new noise on it. So an event is on disk before anything else happens to its update, and is never taken back.
"""

import json
import logging
from dataclasses import replace
from math import inf, isfinite
from typing import Any

import numpy as np

from edgefl.base.errors import StoreError
from edgefl.base.vector import State
from edgefl.learn.privacy import Price
from edgefl.system.disk import Disk
from edgefl.system.json_text import parse_json

log = logging.getLogger(__name__)

NAME = "privacy.json"


class PrivacyLedger:
    """The events of every run this device took part in, by the run of the job."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.runs: dict[str, dict[str, Any]] = {}
        if (raw := disk.read(NAME)) is not None:
            try:
                self.runs = parse_json(raw)
                _ = {run_key: int(spent["odd_updates"]) for run_key, spent in self.runs.items()}
            except (ValueError, TypeError, KeyError, AttributeError):  # a budget is never begun anew unasked
                raise StoreError(
                    f"{disk.where(NAME)}: damaged, so what was spent is not known; restore it, or delete it to count"
                    " from 0"
                ) from None

    def spend(self, run_key: str, price: Price) -> None:
        """After this returns, one more event of this run is on disk."""
        entry = self.reckoned(run_key, price)
        self._disk.write(NAME, json.dumps({**self.runs, run_key: entry}, indent=1).encode())
        self.runs[run_key] = entry
        events, epsilon = entry["odd_updates"], inf if entry["epsilon"] is None else entry["epsilon"]
        log.info("spent job=%s odd_updates=%d epsilon=%.4g delta=%.4g", run_key, events, epsilon, entry["delta"])
        if entry["noise"] == "seeded" and events == 1:
            log.warning(
                "the coordinator can draw this noise again job=%s: its run says privacy.noise = 'seeded'", run_key
            )

    def reckoned(self, run_key: str, price: Price) -> dict[str, Any]:
        """The entry of this run with one more event at this price.

        All are reckoned with the fewest samples that any of them had: more of them make an update cheaper. Where the
        run changes its noise, what came before stays spent and each further update is added to it (basic composition):
        little noise before more of it would otherwise be forgotten.
        """
        before = self.runs.get(run_key, {})
        price = replace(price, samples=min(price.samples, int(before.get("samples", price.samples))))
        events, terms = self.events(run_key) + 1, f"{price.mechanism} mu={price.mu} size={price.layout.size}"
        same = terms == before.get("terms", terms)  # the first event of a run has none before it
        cost = price.of(events if same else 1)
        epsilon, delta = cost["epsilon"], cost["delta"]
        if not same:
            earlier = before["epsilon"]
            epsilon, delta = epsilon + (inf if earlier is None else earlier), delta + before["delta"]
        return {
            "odd_updates": events,
            "samples": price.samples,
            "noise": price.mechanism.noise,
            "epsilon": epsilon if isfinite(epsilon) else None,  # seeded noise promises nothing
            "delta": delta,
            "terms": terms if same else "changed",
        }

    def events(self, run_key: str) -> int:
        """How many private updates were computed in this run."""
        return int(self.runs.get(run_key, {}).get("odd_updates", 0))

    def state(self, run_key: str) -> State:
        """The count as an algorithm keeps it; nothing where nothing was spent."""
        return {"odd_updates": np.array(self.events(run_key), np.int64)} if run_key in self.runs else {}
