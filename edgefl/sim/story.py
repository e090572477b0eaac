"""Who hears what of a run that was interrupted.

    the whole story   what was told before the interruption, each report once, then `Resumed`, then what is new:
                      comparisons, callbacks in Python
    only what is new  `Resumed`, then the rest: the terminal, which has shown the beginning

Reports are the facts of metrics.jsonl, where they stand in the order in which they are told. A run that goes on from a
checkpoint takes what came before from that file. An emulated fleet is played again, and so tells all of it by itself.
Exporters ask the file, and know which rounds they have.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from edgefl.base.errors import StoreError
from edgefl.base.events import Done, Evaluating, Fact, Inherited, Resumed, Tell, as_json, from_json
from edgefl.base.report_numbers import Report

OPENINGS = (Evaluating, Inherited)  # what is told before the first round, and not in metrics.jsonl


class Story:
    """What was told of a run so far, interruptions included."""

    def __init__(self, told: Sequence[Report], *, again: bool) -> None:
        """`told` stood in metrics.jsonl when this process began; `again`: the run will tell it once more."""
        self._told, self.again = told, again and bool(told)
        self._openings: list[Fact] = []
        self._resumed = False  # from a checkpoint
        self._reports = 0  # of this story: as many lines of metrics.jsonl are its own

    def memory(self) -> dict[str, Any]:
        """Where it stands, as JSON has it."""
        return {"reports": self._reports, "openings": [as_json(fact) for fact in self._openings]}

    def recall(self, memory: Mapping[str, Any]) -> None:
        """Go on from there; a StoreError if metrics.jsonl has not all of it."""
        if len(self._told) < memory["reports"]:
            raise StoreError(f"metrics.jsonl has {len(self._told)} lines of {memory['reports']}")
        self._told = self._told[: memory["reports"]]
        self._reports = len(self._told)
        self._openings = [from_json(fact) for fact in memory["openings"]]

    def hear(self, fact: Fact, tell: Tell, again: Tell | None) -> None:
        """One more fact: it is told, unless it was; `again` wants to hear what was, too."""
        self._reports += isinstance(fact, Report)
        if isinstance(fact, OPENINGS) and not self._resumed:
            self._openings.append(fact)
        if self.again:
            self._hear_again(fact, tell, again)
        elif isinstance(fact, Resumed):
            self._resumed = True
            if again:
                for earlier in (*self._openings, *self._told):
                    again(earlier)
            tell(fact)
        elif not (again and self._resumed and isinstance(fact, OPENINGS)):  # that was told with the reports, as it was
            tell(fact)

    def _hear_again(self, fact: Fact, tell: Tell, again: Tell | None) -> None:
        """A fact of a run that is played once more, up to the last one that was told."""
        if again or isinstance(fact, Done):
            tell(fact)
        if isinstance(fact, Report) and self._reports >= len(self._told):
            self.again = False
            if not isinstance(fact, Done):
                tell(Resumed(fact.round + 1, at=fact.at))
