"""Which questions of the fleet's operator this device answers (`[remote]` of its agent file), and how often. Pure.

asked ─▶ known id? ─▶ pass over
      ─▶ too many? ─▶ refuse once, then pass over until there is room again
      ─▶ not known, not allowed, hidden, just examined? ─▶ refuse
      ─▶ answer, or examine first
"""

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TypeAlias

from edgefl.job.config.remote import QUESTIONS

BURST, REFILL = 6, 10.0  # questions at once; seconds until there is room for one more
REST = 30.0  # seconds from one examination to the next: each starts a process
IDS = 32  # of the last questions, each of which counts once


@dataclass(frozen=True, slots=True)
class AnswerQuestion:
    """Tell what is at hand."""


@dataclass(frozen=True, slots=True)
class ExamineMachine:
    """Examine this machine, and then tell what was found."""


@dataclass(frozen=True, slots=True)
class RefuseQuestion:
    """Say why there is no answer."""

    reason: str


@dataclass(frozen=True, slots=True)
class PassOverQuestion:
    """Say nothing."""


Verdict: TypeAlias = AnswerQuestion | ExamineMachine | RefuseQuestion | PassOverQuestion


@dataclass(frozen=True, slots=True)
class Questions:
    """What is allowed, and what was asked of late."""

    allowed: Collection[str] = ()
    hides: bool = False  # whether others hear nothing of how the machine fares: it has a privacy allowance
    room: float = BURST  # for questions, at the moment `counted_at`
    counted_at: float = 0.0
    refused: bool = False  # whether it was said that there are too many
    ids: tuple[str, ...] = ()
    examining: bool = False
    examined_at: float = -math.inf  # when the last examination began


def asked(s: Questions, id: str, what: str, now: float, *, trusts: bool = True) -> tuple[Questions, Verdict]:
    """Return what to do about a question; `trusts` whether this device has met its coordinator."""
    if id in s.ids:
        return s, PassOverQuestion()
    room = min(float(BURST), s.room + (now - s.counted_at) / REFILL)
    s = replace(s, room=room, counted_at=now, ids=(*s.ids, id)[-IDS:])
    if room < 1:
        reason = f"more than {BURST} questions in a minute: ask again in {math.ceil((1 - room) * REFILL)} s"
        return replace(s, refused=True), PassOverQuestion() if s.refused else RefuseQuestion(reason)
    s = replace(s, room=room - 1, refused=False)
    if reason := _against(s, what, now, trusts=trusts):
        return s, RefuseQuestion(reason)
    if what != "doctor":
        return s, AnswerQuestion()
    return replace(s, examining=True, examined_at=now), ExamineMachine()


def examined(s: Questions) -> Questions:
    """Return the state behind an examination."""
    return replace(s, examining=False)


def _against(s: Questions, what: str, now: float, *, trusts: bool) -> str:  # noqa: PLR0911  one reason, one line or two
    """Return why there is no answer; empty if there is one."""
    if not trusts:
        return "this device has not worked for a coordinator yet, so it does not know whom to answer"
    if what not in QUESTIONS:
        return f"this device does not know the question '{what}': it answers {', '.join(QUESTIONS)}"
    if what not in s.allowed:
        allowed = ", ".join(f'"{one}"' for one in s.allowed)
        return f"this device's operator does not allow '{what}': its agent file says remote.allow = [{allowed}]"
    if what == "vitals" and s.hides:
        return "this device has a privacy allowance (privacy.epsilon), and hides how its machine fares"
    if what == "doctor" and s.examining:
        return "an examination is under way: ask again in a moment"
    if what == "doctor" and (rest := s.examined_at + REST - now) > 0:
        return f"this device was examined less than {REST:.0f} s ago: ask again in {math.ceil(rest)} s"
    return ""
