"""What a coordinator said about a task is used for that task and no other."""

from dataclasses import replace
from pathlib import Path

import pytest
from idle_agents import idle_agent

from device_agent.decide.session import known
from device_agent.decide.vocabulary import Tasked
from device_agent.shell.service import Agent
from edgefl.wire import chunks, topics
from edgefl.wire.messages import Assignment, frame
from edgefl.wire.signed import Speaker
from edgefl.wire.signing import Signer
from edgefl.wire.transport import Message

SAID = Assignment(job="job", run_id="life", round=3, attempt=1, model="m3", batches=5)
TASK = Tasked("job", "life", 3, "m3", "1", batches=5)
COORDINATOR = Speaker(Signer.new(), "default", 1)


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return idle_agent(tmp_path)


def hear(agent: Agent, assignment: Assignment) -> None:
    data = frame(assignment)
    for part in chunks.split(data, chunks.digest(data)):
        sealed = COORDINATOR.seal("down", part, job=assignment.job, run_id=assignment.run_id, device="pi")
        agent.handle(Message(topics.down("default", assignment.job, "pi"), sealed))


@pytest.mark.parametrize(
    "other",
    [{"round": 2, "model": "m2"}, {"job": "another", "model": "x"}, {"installation": "somebody-else", "model": "y"}],
    ids=["older", "of another run", "for another device"],
)
def test_a_task_that_is_not_taken_up_replaces_nothing(agent: Agent, other: dict[str, object]):
    hear(agent, SAID)
    hear(agent, SAID.model_copy(update=other))
    assert agent.session.task == TASK


def test_the_same_task_again_replaces_what_was_said_and_nothing_else_is_kept(agent: Agent):
    hear(agent, SAID)
    hear(agent, SAID.model_copy(update={"attempt": 2, "batches": 7}))
    assert known(agent.session) == (replace(TASK, attempt="2", batches=7),)


def test_everything_that_a_coordinator_says_about_a_task_stays_with_it(agent: Agent):
    full = {"previous": "m2", "graphs": "g", "overtime": True, "counted": 2, "seconds": 1.5}
    hear(agent, SAID.model_copy(update=full))
    assert agent.session.task == replace(TASK, **full)
