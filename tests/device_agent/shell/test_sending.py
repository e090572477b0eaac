"""What the agent puts on the wire for an update: all of it once, then only what is missing."""

from math import inf

import pytest
from idle_agents import idle_agent

from device_agent.decide import vocabulary
from device_agent.durable.birth_number import Birth, born
from device_agent.durable.spool import Spool, SpooledUpdate
from device_agent.shell.service import Agent
from edgefl.system.disk import FolderDisk
from edgefl.system.memory_disk import MemoryDisk
from edgefl.wire import chunks, signed
from edgefl.wire.messages import TO_COORDINATOR, Holding, read
from edgefl.wire.signed import LATEST

FRAME = bytes(range(250))
HELD = SpooledUpdate("job", "job.life", 3, "1", "m3", FRAME, chunks.digest(FRAME), {})


@pytest.fixture(autouse=True)
def three_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK", 100)
    monkeypatch.setattr(chunks, "TOGETHER", (1,))


def sent(agent: Agent) -> list[object]:
    """Indexes of chunks of the update, or the message that was said instead; the outbox is then empty."""
    messages: list[object] = []
    assembler = chunks.Assembler(1 << 20)
    for _, message, *_ in agent.transport.outbox:
        payload = signed.opened(message).payload
        part = chunks.read(payload, 1 << 20)
        if part.digest == HELD.digest:
            messages.append(part.index)
        elif whole := assembler.add(payload):
            messages.append(read(TO_COORDINATOR, whole[1], 1 << 20)[0])
    agent.transport.outbox.clear()
    return messages


def test_an_update_is_sent_whole_and_then_only_offered(tmp_path):
    agent = idle_agent(tmp_path)
    agent.held[HELD.digest.hex()] = HELD
    agent._perform(vocabulary.Send(3, HELD.digest.hex()))
    assert sent(agent) == [0, 1, 2]
    agent._perform(vocabulary.Offer(3, HELD.digest.hex()))
    assert sent(agent) == [Holding(job="job", run_id="life", round=3, digest=HELD.digest, size=250)]


def test_a_message_carries_what_the_line_brings_to_the_broker_in_a_second(tmp_path, monkeypatch):
    monkeypatch.setattr(chunks, "TOGETHER", (4, 2, 1))
    agent = idle_agent(tmp_path)
    agent.held[HELD.digest.hex()] = HELD
    for speed, messages in ((inf, [0]), (2 * chunks.CHUNK + chunks.HEAD + chunks.AROUND, [0, 2]), (1.0, [0, 1, 2])):
        agent.transport.line = speed
        agent._perform(vocabulary.Send(3, HELD.digest.hex()))
        assert sent(agent) == messages
    agent.transport.line = inf
    agent._perform(vocabulary.SendChunks(HELD.digest.hex(), (0, 2)))
    assert sent(agent) == [0, 2]


def test_an_update_from_before_a_power_cut_is_offered_first(tmp_path):
    Spool(FolderDisk(tmp_path)).put(HELD)
    agent = idle_agent(tmp_path)
    agent._perform(vocabulary.Offer(3, HELD.digest.hex()))
    assert sent(agent) == [Holding(job="job", run_id="life", round=3, digest=HELD.digest, size=250)]
    agent._perform(vocabulary.SendChunks(HELD.digest.hex(), (1, 2, 7)))
    assert sent(agent) == [1, 2]


def test_chunks_that_are_still_on_their_way_are_not_sent_again(tmp_path):
    agent = idle_agent(tmp_path)
    agent.held[HELD.digest.hex()] = HELD
    agent._perform(vocabulary.Send(3, HELD.digest.hex()))
    agent._perform(vocabulary.SendChunks(HELD.digest.hex(), (1, 2)))
    assert sent(agent) == [0, 1, 2]
    agent._perform(vocabulary.SendChunks(HELD.digest.hex(), (2,)))
    assert sent(agent) == [2]


def test_a_birth_file_that_cannot_be_read_makes_a_new_installation(tmp_path):
    (tmp_path / "birth").write_text("torn fi")
    first, second = idle_agent(tmp_path).birth, idle_agent(tmp_path).birth
    assert (first.before, second.before) == (0, first.number)
    assert first.installation == second.installation
    assert first.number < second.number


@pytest.mark.parametrize(("clock", "number"), [(1000.5, 1000), (3.0, 8), (1e12, LATEST)], ids=["right", "back", "wild"])
def test_a_life_is_known_by_its_time_so_that_a_disk_which_was_set_back_is_no_old_life(clock, number):
    disk = MemoryDisk()
    disk.write("birth", b"pi 7\n")
    assert born(disk, lambda: "new", clock) == Birth("pi", number, before=7)


def test_what_is_kept_between_rounds_is_lost_with_a_warning_when_it_is_damaged(tmp_path, caplog):
    agent = idle_agent(tmp_path)
    (tmp_path / "job.life.state").write_bytes(b"not one of ours")
    assert agent.states.of("job.life") == {}
    assert "is lost" in caplog.text
