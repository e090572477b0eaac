"""Which machine has the round in hand: the one that waits for its devices, or the buffered one.

Rounds that make no model, in which devices describe their data or evaluate the last model, always wait.
"""

from dataclasses import replace

from coordinator.decide import buffered, rounds
from coordinator.decide.rounds import Event, RoundMerged, Rounds, Step, Verdict


def waits_for_nobody(s: Rounds) -> bool:
    """Whether the round in hand does."""
    return s.rules.buffered and s.rules.schedule.purpose(s.round) == "train"


def step(s: Rounds, event: Event) -> Step:
    """The state after this event, and what is to be done about it."""
    if waits_for_nobody(s):
        return buffered.step(s, event)
    if isinstance(event, RoundMerged) and s.phase == "merging" and not event.done:
        after = replace(s, round=event.round + 1)
        if waits_for_nobody(after):
            return buffered.opened(rounds.cleared(after))
    return rounds.step(s, event)


def verdict(s: Rounds, device: str, round: int) -> Verdict:
    """What would become of an answer that came now."""
    return buffered.verdict(s, device, round) if waits_for_nobody(s) else rounds.verdict(s, device, round)


def outstanding(s: Rounds) -> tuple[str, ...]:
    """Who was asked and may still answer, in the order they were asked."""
    return buffered.outstanding(s) if waits_for_nobody(s) else rounds.outstanding(s)


def waiting(s: Rounds) -> str:
    """Why the coordinator waits, in one line for a human."""
    return buffered.waiting(s) if waits_for_nobody(s) else rounds.waiting(s)


def oldest_welcome(s: Rounds) -> int:
    """The first round that a device may still be at work for."""
    return buffered.oldest_welcome(s) if waits_for_nobody(s) else s.round
