"""Questions from afar in wrong hands: forged, replayed, foreign, too many, too large, and texts that forge lines."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from asked_agents import DEVICE, FLEET, Asked

from device_agent.decide.questions import BURST
from edgefl.base.errors import WireError
from edgefl.ops.diagnosis import Asker, Lives
from edgefl.system.logs import RecentLines
from edgefl.wire import chunks, topics
from edgefl.wire.frames import pack
from edgefl.wire.messages import REPLY, DeviceRequest, Examined, Reply, frame
from edgefl.wire.signed import Speaker
from edgefl.wire.signing import Signer
from edgefl.wire.transport import Message

ROOT = Path(__file__).parents[2]
PLACE = {"job": topics.SERVER, "run_id": topics.DIAGNOSIS, "device": DEVICE}
DOWN, UP = topics.down(FLEET, topics.SERVER, DEVICE), topics.up(FLEET, topics.SERVER, DEVICE)


def part(message: DeviceRequest | Reply) -> bytes:
    data = frame(message)
    (one,) = chunks.split(data, chunks.digest(data))
    return one


def changed(message: bytes) -> bytes:
    return message[:-1] + bytes([message[-1] ^ 1])


REQUEST = part(DeviceRequest(id="forged", what="doctor"))

# ---- what a device hears ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("unsigned", "message.unsigned"),
        ("by an unknown key", "message.key"),
        ("by the device itself", "message.key"),
        ("for another device", "message.signature"),
        ("for another fleet", "message.signature"),
        ("as an answer", "message.signature"),
        ("changed", "message.signature"),
        ("of a run", "wire.malformed"),
        ("of another job", "wire.malformed"),
    ],
)
def test_no_question_is_answered_that_the_operator_did_not_ask(tmp_path: Path, how: str, code: str) -> None:
    asked = Asked(tmp_path)
    ours, topic = Speaker(asked.signer, FLEET, 1 << 20), DOWN
    match how:
        case "unsigned":
            forged = REQUEST
        case "by an unknown key":
            forged = Speaker(Signer.new(), FLEET, 1 << 20).seal("down", REQUEST, **PLACE)
        case "by the device itself":
            forged = asked.agent.speaker.seal("down", REQUEST, **PLACE)
        case "for another device":
            forged = ours.seal("down", REQUEST, **{**PLACE, "device": "other"})
        case "for another fleet":
            forged = Speaker(asked.signer, "other", 1 << 20).seal("down", REQUEST, **PLACE)
        case "as an answer":
            forged = ours.seal("up", REQUEST, **PLACE)
        case "of a run":
            forged = ours.seal("down", REQUEST, **{**PLACE, "run_id": "a1b2"})
        case "of another job":
            forged, topic = (
                ours.seal("down", REQUEST, **{**PLACE, "job": "digits"}),
                topics.down(FLEET, "digits", DEVICE),
            )
        case _:
            forged = changed(ours.seal("down", REQUEST, **PLACE))
    asked.agent.handle(Message(topic, forged))
    assert (asked.sent(), asked.examiner.puts) == ([], [])
    assert asked.agent.refusals[code] == 1


def test_a_question_that_comes_again_is_old_after_a_restart_too(tmp_path: Path) -> None:
    asked = Asked(tmp_path)
    message = Message(*asked.asker.message(asked.asker.question(DEVICE, "logs", "anna")))
    asked.agent.handle(message)
    assert len(asked.sent()) == 1
    for agent in (asked.agent, asked.started()):
        agent.handle(message)
        assert asked.sent(agent) == []
        assert agent.refusals["message.replayed"] == 1


def test_questions_do_not_make_a_run_s_messages_old(tmp_path: Path) -> None:
    """Their counters are of today; those of a run began with its coordinator, perhaps long ago."""
    asked = Asked(tmp_path)
    asked.answer("logs")
    asked.agent.inbound.replays.new_message(asked.signer.key, "an-older-run", 1)


def test_a_flood_of_questions_brings_few_answers_and_few_lines(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    asked = Asked(tmp_path)
    for _ in range(200):
        asked.ask("doctor")
    assert len(asked.examiner.puts) == 1
    assert len(asked.sent()) == BURST, "one examination is under way, the others are refused, the last with why"
    assert sum(one.getMessage().startswith("question") for one in caplog.records) == BURST + 1


def test_who_asks_writes_no_line_of_his_own_into_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    asked = Asked(tmp_path)
    recent = RecentLines()
    caplog.handler.addFilter(lambda record: recent.emit(record) or True)
    asked.ask("logs", by="anna' key=ed25519:x answered\n2026-01-01 00:00:00 INFO edgefl: all is well\x1b[2J")
    (line,) = [one for one in recent.lines() if ": question" in one]
    assert line.isprintable()
    assert f"key={asked.signer.key}" in line, "what he calls himself is quoted"


# ---- what the operator hears -----------------------------------------------------------------------------------------


def hears(asked: Asked, payload: bytes, topic: str = UP) -> object:
    return asked.asker.heard(Message(topic, payload))


@pytest.mark.parametrize("how", ["by another key", "for another device", "as a question", "changed", "unsigned"])
def test_no_answer_is_believed_that_the_device_did_not_give(tmp_path: Path, how: str) -> None:
    asked = Asked(tmp_path)
    asked.answer("logs")  # so its key is known
    question = asked.asker.question(DEVICE, "logs", "anna")
    reply, device = part(Reply(id=question.request.id, lines=("forged",))), asked.agent.speaker
    forged = {
        "by another key": Speaker(Signer.new(), FLEET, 1 << 20).seal("up", reply, **PLACE),
        "for another device": device.seal("up", reply, **{**PLACE, "device": "other"}),
        "as a question": device.seal("down", reply, **PLACE),
        "changed": changed(device.seal("up", reply, **PLACE)),
        "unsigned": reply,
    }[how]
    with pytest.raises(WireError, match=r"."):
        hears(asked, forged)
    assert question.request.id in asked.asker.open


def test_an_answer_to_another_question_or_of_another_device_or_a_second_one_is_passed_over(tmp_path: Path) -> None:
    asked = Asked(tmp_path)
    device = asked.agent.speaker
    question, others = asked.asker.question(DEVICE, "logs", ""), asked.asker.question("other", "logs", "")
    for id in ("older", others.request.id):
        assert hears(asked, device.seal("up", part(Reply(id=id)), **PLACE)) is None
    good = device.seal("up", part(Reply(id=question.request.id)), **PLACE)
    assert hears(asked, good) is not None
    assert hears(asked, good) is None


def test_an_answer_beyond_its_bound_is_not_read(tmp_path: Path) -> None:
    asked = Asked(tmp_path)
    question = asked.asker.question(DEVICE, "doctor", "")
    text = "x" * 2000
    large = Reply(id=question.request.id, findings=(Examined(what="a", level="ok", text=text),) * 40)
    assert len(frame(large)) > REPLY
    with pytest.raises(WireError, match=r"large|limit"):
        hears(asked, asked.agent.speaker.seal("up", part(large), **PLACE))
    with pytest.raises(WireError, match=r"."):
        hears(asked, asked.agent.speaker.seal("up", b"EC\1" + bytes(60), **PLACE))


def test_what_a_device_tells_moves_no_cursor_of_who_reads_it(tmp_path: Path) -> None:
    asked = Asked(tmp_path)
    question = asked.asker.question(DEVICE, "logs", "")
    reply = {"kind": "reply", "id": question.request.id, "refused": "no\x1b[2J", "lines": ["a\nb\u202e"],
             "findings": [{"what": "x\r", "level": "ok", "text": "y\x07"}]}  # fmt: skip
    data = pack(reply)
    (one,) = chunks.split(data, chunks.digest(data))
    told = hears(asked, asked.agent.speaker.seal("up", one, **PLACE))
    read = told.reply
    assert all(text.isprintable() for text in (read.refused, *read.lines, read.findings[0].what, read.findings[0].text))


def test_who_asks_from_two_processes_is_heard_in_both(tmp_path: Path) -> None:
    """Their counters come from one file, and grow though the clock stands, or goes back."""
    asked = Asked(tmp_path)
    other = Asker(FLEET, asked.signer, asked.asker.keys, Lives(asked.asker.lives.path, lambda: 5.0))
    for asker in (asked.asker, other) * 2:
        asked.agent.handle(Message(*asker.message(asker.question(DEVICE, "logs", ""))))
    assert len(asked.sent()) == 4


# ---- what may be told of the log -------------------------------------------------------------------------------------

# Everything that records are made of which others may be told: names, keys, versions and counts of the network and of
# the agent file, texts of brokers and coordinators, and texts that are told anyway (`told`). No value of the data, no
# name of a file of data, no text of an exception. Whoever marks another record adds what it quotes, and has thought.
FREE = {
    "device_agent/durable/broker_addresses.py": {"', '.join(map(str, addresses))"},
    "device_agent/durable/trust.py": {"key", "self.path"},
    "device_agent/shell/diagnosis.py": {"key", "outcome", "request.by", "request.id", "request.what"},
    "device_agent/shell/presence.py": {"self.birth.number", "self.device", "presence.host"},
    "device_agent/shell/renewal.py": {"_date(ends)", "self.device"},
    "device_agent/start.py": {"where", "back_end", "len(samples.data)", "me.id"},
    "device_agent/shell/service.py": {
        *(
            "self.device",
            "self.broker",
            "event",
            "topic",
            "reason",
            "self.attendance.site",
            "f'paused why={error.told}'",
        ),
        *("message.job", "message.round", "message.model", "message.verdict", "message.reason", "others"),
        *("task.round", "len(data)", "digest.hex()[:16]"),
    },
}


def names_of(function: ast.AST, starred: str) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and starred in map(ast.unparse, node.targets):
            values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            yield from map(ast.unparse, values)


def quoted(call: ast.Call, function: ast.AST) -> Iterator[str]:
    """What a marked record quotes: its arguments behind the text, or the text that is told instead."""
    (mark,) = (word.value for word in call.keywords if word.arg == "extra")
    if isinstance(mark, ast.Call):
        yield from map(ast.unparse, mark.args)
        return
    for value in call.args[1 + (ast.unparse(call.func) == "log.log") :]:
        if isinstance(value, ast.Starred):
            yield from names_of(function, ast.unparse(value.value))
        elif not isinstance(value, ast.Constant):
            yield ast.unparse(value)


def marked() -> Iterator[tuple[str, str]]:
    for package in ("device_agent", "edgefl", "gateway", "coordinator"):
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            tree = ast.parse(text if "extra=" in text else "")
            for function in (one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)):
                for node in ast.walk(function):
                    if isinstance(node, ast.Call) and any(word.arg == "extra" for word in node.keywords):
                        yield from ((str(path.relative_to(ROOT)), name) for name in quoted(node, function))


def test_a_marked_record_quotes_nothing_but_what_is_known_to_be_free_of_data() -> None:
    assert {(place, name) for place, name in marked() if name not in FREE.get(place, ())} == set()
    assert len(set(marked())) > 20


COMPLAINTS = {"ignored", "taken", "older", "what", "f'declined round={round} why={verdict.told}'"}


def test_what_others_are_told_of_a_complaint_holds_no_text_of_an_exception() -> None:
    tree = ast.parse((ROOT / "device_agent/shell/service.py").read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    others = {ast.unparse(one.args[1]) for one in calls if ast.unparse(one.func) == "self._complain"}
    assert others == COMPLAINTS
    for name in COMPLAINTS & {"ignored", "taken", "older"}:
        texts = set(names_of(tree, name))
        assert texts
        assert not any("{error}" in text or "why" in text for text in texts), texts
