"""Reports: the facts that a reader must have exactly once, however often a run is interrupted.

The number of a report is its round. Reports of one kind are told in the order of their numbers, some again after a
restart: a reader remembers the last number of each kind, and drops what is not above it. Kinds have no common order:
devices judge the last model of a run before its end is told, or after that, if the run ended early and was extended.
"""

from typing import Self, TypeAlias

from edgefl.base.events import Described, Done, Evaluated, Fact, Round

RoundReport: TypeAlias = Described | Round | Evaluated  # what is told of a merge
Report: TypeAlias = RoundReport | Done


def number(report: Report) -> tuple[str, int]:
    """Return the kind of a report, and its number."""
    return type(report).__name__.lower(), report.rounds if isinstance(report, Done) else report.round


class LastReports(dict[str, int]):
    """The last number of each kind that a reader has."""

    def has(self, fact: Fact) -> bool:
        """Return whether this is a report that the reader has."""
        return isinstance(fact, Report) and number(fact)[1] <= self.get(number(fact)[0], -1)

    def add(self, *facts: Fact) -> Self:
        """Remember those of the facts that are reports, and return the reader's numbers."""
        for fact in facts:
            if isinstance(fact, Report) and not self.has(fact):
                self.update([number(fact)])
        return self
