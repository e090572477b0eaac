"""What a coordinator said about a task is used for that task and no other."""

from pathlib import Path

import pytest
from idle_agents import idle_agent

from device_agent.service import Agent
from edgefl.protocol.messages import Assignment

TASK = Assignment(job="job", run="life", round=3, attempt=1, model="m3", batches=5)


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return idle_agent(tmp_path)


@pytest.mark.parametrize(
    "other",
    [{"round": 2, "model": "m2"}, {"job": "another", "model": "x"}, {"installation": "somebody-else", "model": "y"}],
    ids=["older", "of another run", "for another device"],
)
def test_a_task_that_is_not_taken_up_replaces_nothing(agent: Agent, other: dict[str, object]):
    agent._said("job", TASK)
    said = TASK.model_copy(update=other)
    agent._said(said.job, said)
    assert agent._in_hand() == TASK


def test_the_same_task_again_replaces_what_was_said_and_nothing_else_is_kept(agent: Agent):
    again = TASK.model_copy(update={"attempt": 2, "batches": 7})
    agent._said("job", TASK)
    agent._said("job", again)
    assert agent._in_hand() == again
    assert len(agent.assignments) == 1
