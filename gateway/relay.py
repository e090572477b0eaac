"""What a gateway does with what it is asked, and with what its site has: a pure function, `step(relay, event)`.

    the coordinator                gateway                           its site
       task of round 7  ──▶  Ordered       ──▶  Begin, Advance  ──▶  a round of its own, with the same model
                                                Wait                 (the devices are at work on it already)
       answer           ◀──  DeliverSum    ◀──  Summed          ◀──  closed: the weighted mean of those who answered
       declined         ◀──  DeclineOrder  ◀──  RoundAbandoned  ◀──  no quorum, however long it took

Towards the coordinator it is a device, whose training is a round of its site; towards its devices it is a coordinator,
whose merging is done by the coordinator above. Both are the machines that they are everywhere (`session.py` and
`core.py`); all that is decided between them is here.

House rules
  1. A sum is kept until the site is asked for another round: the same task twice gets the same answer.
  2. A site goes on with a round even if its sum is not wanted: a cancelled order ends nothing, for it may come again.
  3. The site follows: a later round, whatever state the last one is in; an earlier one, or the same one with another
     model, only after everything that was said of the run at the site is thrown away (Begin, afresh).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Order:
    """A task of the coordinator, numbered as the agent numbers its trainings."""

    number: int
    run_key: str
    round: int
    model: str


@dataclass(frozen=True, slots=True)
class SiteRound:
    """What a site is at, or was."""

    round: int
    model: str
    summed: bool = False


@dataclass(frozen=True, slots=True)
class Relay:
    """The order in hand, and the round of each run at the site."""

    order: Order | None = None
    rounds: Mapping[str, SiteRound] = field(default_factory=dict)  # by the run


# ── events ───────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Ordered:
    order: Order


@dataclass(frozen=True, slots=True)
class OrderCancelled:
    pass


@dataclass(frozen=True, slots=True)
class Summed:
    """The site has closed a round; its sum is at hand."""

    run_key: str
    round: int


@dataclass(frozen=True, slots=True)
class RoundAbandoned:
    run_key: str
    round: int
    reason: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The run is over at the coordinator."""

    run_key: str


# ── actions ──────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Begin:
    """Coordinate this run at the site, from what the disk knows of it; `afresh`: from nothing."""

    run_key: str
    afresh: bool = False


@dataclass(frozen=True, slots=True)
class Advance:
    """The run that is coordinated at the site goes on to the round of the order."""

    run_key: str


@dataclass(frozen=True, slots=True)
class DeliverSum:
    """Give the agent the sum, as the answer to this order."""

    order: Order


@dataclass(frozen=True, slots=True)
class DeclineOrder:
    order: Order
    reason: str


@dataclass(frozen=True, slots=True)
class End:
    """Tell the site that the run is over, if it knows of it: from now, or from an earlier life of the gateway."""

    run_key: str


Event: TypeAlias = Ordered | OrderCancelled | Summed | RoundAbandoned | Ended
Action: TypeAlias = Begin | Advance | DeliverSum | DeclineOrder | End
Step: TypeAlias = tuple[Relay, tuple[Action, ...]]


# ── the machine ──────────────────────────────────────────────────────────────────────────────────────────────


def step(r: Relay, event: Event) -> Step:
    """The state after this event, and what is to be done about it."""
    match event:
        case Ordered(order):
            return _ordered(replace(r, order=order), order)
        case OrderCancelled():
            return replace(r, order=None), ()
        case Summed(run_key, round):
            return _summed(r, run_key, round)
        case RoundAbandoned(run_key, round, reason) if _answers(r.order, run_key, round):
            assert r.order is not None  # noqa: S101 - it answers
            return replace(r, order=None), (DeclineOrder(r.order, reason),)
        case Ended(run_key):
            rest = {other: at for other, at in r.rounds.items() if other != run_key}
            return replace(r, rounds=rest), (End(run_key),)
        case _:
            return r, ()


def _ordered(r: Relay, order: Order) -> Step:
    at, fresh = r.rounds.get(order.run_key), SiteRound(order.round, order.model)
    now = replace(r, rounds={**r.rounds, order.run_key: fresh})
    if at is None:
        return now, (Begin(order.run_key),)
    if (at.round, at.model) == (order.round, order.model):
        return (replace(r, order=None), (DeliverSum(order),)) if at.summed else (r, ())
    if order.round > at.round:
        return now, (Advance(order.run_key),)
    return now, (Begin(order.run_key, afresh=True),)


def _summed(r: Relay, run_key: str, round: int) -> Step:
    at = r.rounds.get(run_key)
    if at is None or at.round != round:
        return r, ()  # of a round that is over
    r = replace(r, rounds={**r.rounds, run_key: replace(at, summed=True)})
    if _answers(r.order, run_key, round) and r.order is not None:
        return replace(r, order=None), (DeliverSum(r.order),)
    return r, ()


def _answers(order: Order | None, run_key: str, round: int) -> bool:
    return order is not None and (order.run_key, order.round) == (run_key, round)
