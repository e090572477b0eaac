"""Which questions of the fleet's operator a device answers, and how often."""

from dataclasses import replace

from device_agent.decide.questions import (
    BURST,
    IDS,
    REFILL,
    REST,
    AnswerQuestion,
    ExamineMachine,
    PassOverQuestion,
    Questions,
    RefuseQuestion,
    asked,
    examined,
)
from edgefl.job.config.remote import QUESTIONS

OPEN = Questions(QUESTIONS)


def refusal(verdict: object) -> str:
    assert isinstance(verdict, RefuseQuestion)
    return verdict.reason


def test_what_is_allowed_is_answered_and_the_doctor_examines_first() -> None:
    assert isinstance(asked(OPEN, "a", "logs", 0.0)[1], AnswerQuestion)
    assert isinstance(asked(OPEN, "a", "vitals", 0.0)[1], AnswerQuestion)
    assert isinstance(asked(OPEN, "a", "doctor", 0.0)[1], ExamineMachine)


def test_what_the_agent_file_does_not_allow_is_refused_with_what_it_says() -> None:
    state = Questions(("doctor",))
    assert 'remote.allow = ["doctor"]' in refusal(asked(state, "a", "logs", 0.0)[1])
    assert "remote.allow = []" in refusal(asked(Questions(()), "a", "doctor", 0.0)[1])


def test_an_unknown_question_is_refused_with_those_that_are_known() -> None:
    assert "doctor, logs, vitals" in refusal(asked(OPEN, "a", "shell", 0.0)[1])


def test_a_device_that_knows_no_coordinator_answers_nobody() -> None:
    assert "has not worked for a coordinator" in refusal(asked(OPEN, "a", "logs", 0.0, trusts=False)[1])


def test_a_device_with_a_privacy_allowance_hides_how_its_machine_fares() -> None:
    state = replace(OPEN, hides=True)
    assert "hides" in refusal(asked(state, "a", "vitals", 0.0)[1])
    assert isinstance(asked(state, "a", "logs", 0.0)[1], AnswerQuestion)


def test_a_question_counts_once_however_often_it_comes() -> None:
    state, first = asked(OPEN, "a", "logs", 0.0)
    state, again = asked(state, "a", "logs", 1.0)
    assert (first, again) == (AnswerQuestion(), PassOverQuestion())
    for number in range(10 * IDS):
        state, _ = asked(state, f"{number}", "logs", 2.0 + 100 * number)
    assert len(state.ids) == IDS


def test_too_many_questions_are_refused_once_and_then_passed_over_until_there_is_room() -> None:
    state, verdicts = OPEN, []
    for number in range(BURST + 3):
        state, verdict = asked(state, f"{number}", "logs", 0.0)
        verdicts.append(verdict)
    assert verdicts[:BURST] == [AnswerQuestion()] * BURST
    assert f"ask again in {REFILL:.0f} s" in refusal(verdicts[BURST])
    assert verdicts[BURST + 1 :] == [PassOverQuestion()] * 2
    state, verdict = asked(state, "later", "logs", REFILL)
    assert verdict == AnswerQuestion()
    state, verdict = asked(state, "at once", "logs", REFILL)
    assert refusal(verdict), "it is said again, since there was room meanwhile"


def test_refused_questions_take_room_as_well() -> None:
    state = Questions(())
    for number in range(BURST):
        state, _ = asked(state, f"{number}", "logs", 0.0)
    assert "more than" in refusal(asked(state, "one more", "logs", 0.0)[1])


def test_one_examination_at_a_time_and_a_rest_behind_each() -> None:
    state, _ = asked(OPEN, "a", "doctor", 100.0)
    state, verdict = asked(state, "b", "doctor", 101.0)
    assert "under way" in refusal(verdict)
    state, verdict = asked(examined(state), "c", "doctor", 102.0)
    assert f"ask again in {REST - 2:.0f} s" in refusal(verdict)
    assert isinstance(asked(state, "d", "doctor", 100.0 + REST)[1], ExamineMachine)
