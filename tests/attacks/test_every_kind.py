"""Every kind of message there is, forged and said again: by a member, by the broker, by a stranger, over restarts.

The lists are made from the messages themselves: a new kind that nobody attacks here makes the first test fail. What a
device hears is tried with a real agent after a run, what a coordinator hears with one that waits for answers.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, get_args

import pytest
from fleets import until
from pydantic import BaseModel
from test_forged_updates import OTHER, VICTIM, Siege, parts
from test_replay import DEVICE, DOWN, STATE, Recorded

from coordinator.shell.authentication import DeviceAuthentication
from coordinator.shell.device_keys import DeviceKeys
from device_agent.durable.trust import RequestedModel, Trust
from edgefl.base.errors import WireError
from edgefl.system.memory_disk import MemoryDisk
from edgefl.wire import calls, chunks, messages, signed, topics
from edgefl.wire.calls import Callee
from edgefl.wire.messages import (
    Absent,
    Addresses,
    Answer,
    Assignment,
    Broadcast,
    BusyMessage,
    Call,
    DeclinedMessage,
    DeviceRequest,
    Enclosed,
    Examined,
    Graphs,
    Holding,
    JobState,
    Manifest,
    Missing,
    Presence,
    Receipt,
    Refusal,
    Renew,
    Renewal,
    Renewed,
    Reply,
    RowField,
    RowForm,
    Shape,
    Tensor,
    WireVitals,
    Working,
    frame,
)
from edgefl.wire.signed import SigningContext, Speaker
from edgefl.wire.signing import Signer

RUN_ID, FLEET, JOB = "0123456789ab", "default", "fleet"
DIGEST = bytes(32)
ABOUT: dict[str, Any] = {"job": JOB, "run_id": RUN_ID, "round": 1}  # Any: whatever a message says

TO_DEVICE: dict[type[BaseModel], BaseModel] = {
    Assignment: Assignment(**ABOUT, attempt=9, model="0" * 16, enclosed=Enclosed(manifest=b"{}", frame=b"x")),
    Receipt: Receipt(job=JOB, round=1, digest=DIGEST, verdict="accepted"),
    Refusal: Refusal(code="device.key", reason="go away"),
    Missing: Missing(digest=DIGEST, indexes=(0,)),
    Renewed: Renewed(certificate="x"),
    Addresses: Addresses(number=9, brokers=("mqtts://evil.local:8883",)),
    Renew: Renew(job=JOB, run_id=RUN_ID),
    DeviceRequest: DeviceRequest(id="forged", what="doctor"),
}
TO_COORDINATOR: dict[type[BaseModel], BaseModel] = {
    Answer: Answer(**ABOUT, device=VICTIM, model="0" * 16, weight=1.0, steps=1, tensors=()),
    Holding: Holding(**ABOUT, digest=DIGEST, size=100),
    Missing: Missing(digest=DIGEST, indexes=(0,)),
    Absent: Absent(job=JOB, model="0" * 16),
    DeclinedMessage: DeclinedMessage(job=JOB, round=1, reason="forged"),
    BusyMessage: BusyMessage(job=JOB, round=1, reason="forged"),
    Working: Working(job=JOB, round=1, steps=7),
    Renewal: Renewal(job=JOB, request="x"),
}
TO_ALL = {Call}  # of a round: tests of its own below
RETAINED = {Presence, JobState, Manifest}  # each has tests of its own below
BY_MANIFEST = {Broadcast, Graphs, Enclosed}  # models, and graphs: what a manifest does not name is not believed
TO_SERVER = {Reply, Renewal}  # what the operator hears: tests/attacks/test_questions_from_afar.py
PARTS = {Tensor, Shape, WireVitals, RowField, RowForm, Examined}  # of messages


def kinds(union: Any) -> set[type[BaseModel]]:  # Any: a form of types that has no name
    return set(get_args(get_args(union)[0]))


def test_every_kind_of_message_is_attacked() -> None:
    assert kinds(messages.ToDevice) == set(TO_DEVICE)
    assert kinds(messages.ToCoordinator) == set(TO_COORDINATOR)
    assert kinds(messages.ToServer) == TO_SERVER
    defined = {one for _, one in inspect.getmembers(messages, inspect.isclass) if issubclass(one, messages._WireModel)}
    attacked = set(TO_DEVICE) | set(TO_COORDINATOR) | TO_SERVER | TO_ALL | RETAINED | BY_MANIFEST | PARTS
    assert defined - {messages._WireModel} == attacked


def one_part(message: BaseModel) -> bytes:
    (part,) = parts(frame(message))
    return part


# ---- what a device hears --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    """A fleet after a run; its device has one coordinator's key pinned."""
    recorded = Recorded(tmp_path_factory.mktemp("played"))
    recorded.fleet.start_all()
    recorded.play()
    yield recorded
    recorded.close()


class Down:
    """Ways to say something to a device that its coordinator did not say to it now."""

    def __init__(self, played: Recorded) -> None:
        self.coordinator = Speaker(played.signer, FLEET, 1 << 30)
        self.member = Speaker(played.fleet.agents["device-01"].speaker.signer, FLEET, 1 << 30)
        self.ended = next(iter(played.agent.inbound.replays.runs))

    def seal(self, speaker: Speaker, part: bytes, **instead: str) -> bytes:
        return speaker.seal("down", part, **{"job": JOB, "run_id": RUN_ID, "device": DEVICE, **instead})

    def ways(self) -> dict[str, tuple[str, Callable[[bytes], bytes]]]:
        """By what is wrong: the code that it is counted under, and how it is made."""
        ours, strangers = self.coordinator, Speaker(Signer.new(), FLEET, 1 << 30)

        def changed(part: bytes) -> bytes:
            sealed = bytearray(self.seal(ours, part))
            sealed[-1] ^= 1
            return bytes(sealed)

        return {
            "unsigned": ("message.unsigned", lambda part: part),
            "by an unknown key": ("message.key", lambda part: self.seal(strangers, part)),
            "by another member": ("message.key", lambda part: self.seal(self.member, part)),
            "for another device": ("message.signature", lambda part: self.seal(ours, part, device="device-01")),
            "for another job": ("message.signature", lambda part: self.seal(ours, part, job="other")),
            "for all": ("message.signature", lambda part: ours.seal("state", part, job=JOB, run_id=RUN_ID)),
            "as a call": ("message.signature", lambda part: ours.seal("round", part, job=JOB, run_id=RUN_ID)),
            "changed": ("message.signature", changed),
            "of a run that ended": ("message.replayed", lambda part: self.seal(ours, part, run_id=self.ended)),
        }


WAYS_DOWN = (
    "unsigned",
    "by an unknown key",
    "by another member",
    "for another device",
    "for another job",
    "for all",
    "as a call",
    "changed",
    "of a run that ended",
)


def standing(played: Recorded) -> tuple[Any, ...]:
    """Whatever a message could change on the device."""
    agent = played.agent
    return agent.trainer.number, agent.session, agent.attendance.pause.until, agent.inbound.trust.key, set(agent.held)


@pytest.mark.parametrize("kind", TO_DEVICE, ids=lambda one: one.__name__)
@pytest.mark.parametrize("way", WAYS_DOWN)
def test_nothing_is_done_that_the_coordinator_did_not_say(played: Recorded, kind: type[BaseModel], way: str) -> None:
    before, counted = standing(played), played.agent.refusals.copy()
    ways = Down(played).ways()
    assert set(ways) == set(WAYS_DOWN)
    code, forge = ways[way]
    played.say(DOWN, [forge(one_part(TO_DEVICE[kind]))])
    refused = counted[code] + (2 if code == "message.unsigned" else 1)  # and the last one, which nobody understands
    until(lambda: played.agent.refusals[code] >= refused)
    assert standing(played) == before
    assert played.agent.refusals[code] == refused


ROUND = topics.round(FLEET, JOB)


def called(played: Recorded, number: int = 1, *, run: str = RUN_ID, device: str = DEVICE, model: bytes = b"x") -> bytes:
    """The frame of a call of the device under attack, and of another one."""
    task = Assignment(**{**ABOUT, "run_id": run}, attempt=9, model="0" * 16)
    here = Callee(device, played.agent.birth.installation)
    return frame(calls.call(FLEET, task, number, [here, Callee("device-01", "another")], b"{}"), (model,))


@pytest.mark.parametrize("way", [*WAYS_DOWN, "for one device"])
def test_no_call_is_heard_that_the_coordinator_did_not_make(played: Recorded, way: str) -> None:
    before, counted, forms = standing(played), played.agent.refusals.copy(), Down(played)
    ours, here = forms.coordinator, {"job": JOB, "run_id": RUN_ID}
    (part,) = parts(called(played))
    changed = bytearray(ours.seal("round", part, **here))
    changed[-1] ^= 1
    code, forged = {
        "unsigned": ("message.unsigned", part),
        "by an unknown key": ("message.key", Speaker(Signer.new(), FLEET, 1 << 30).seal("round", part, **here)),
        "by another member": ("message.key", forms.member.seal("round", part, **here)),
        "for another device": ("message.signature", ours.seal("round", part, **here, device="device-01")),
        "for another job": ("message.signature", ours.seal("round", part, job="other", run_id=RUN_ID)),
        "for all": ("message.signature", ours.seal("state", part, **here)),
        "as a call": ("wire.malformed", ours.seal("round", one_part(TO_DEVICE[Assignment]), job=JOB, run_id="task")),
        "changed": ("message.signature", bytes(changed)),
        "of a run that ended": ("message.replayed", ours.seal("round", part, job=JOB, run_id=forms.ended)),
        "for one device": ("message.signature", forms.seal(ours, part)),
    }[way]
    played.say(ROUND, [forged])
    refused = counted[code] + (2 if code == "message.unsigned" else 1)  # and the last one, which nobody understands
    until(lambda: played.agent.refusals[code] >= refused)
    assert standing(played) == before


def test_a_call_of_others_is_none_of_a_devices_business(played: Recorded) -> None:
    """It is truly signed; but neither its name with another's installation nor another name is its own."""
    before, refusals, forms = standing(played), played.agent.refusals.copy(), Down(played)
    task = Assignment(**{**ABOUT, "run_id": "others"}, attempt=9, model="0" * 16)
    own = played.agent.birth.installation
    for number, callee in enumerate([Callee(DEVICE, "another"), Callee("device-01", own), Callee("device-01", "x")]):
        (part,) = parts(frame(calls.call(FLEET, task, number, [callee])))
        played.say(ROUND, [forms.coordinator.seal("round", part, job=JOB, run_id="others")])
    assert standing(played) == before
    assert {code for code in played.agent.refusals if played.agent.refusals[code] > refusals[code]} == {
        "message.unsigned"  # the last one, which nobody understands
    }


def test_a_call_in_many_chunks_is_heard_once_and_whole(played: Recorded) -> None:
    """One signature serves all chunks: one that was changed shows when all have come, and an old one is old."""
    forms, heard = Down(played), played.agent.refusals
    runs = ["changed-chunk", "whole-call"]

    def sealed(run: str) -> list[bytes]:
        data = called(played, run=run, model=bytes(2 * chunks.CHUNK))
        messages = (chunks.parts(data, chunks.digest(data), index) for index in range(chunks.count(len(data))))
        return [b"".join(one) for one in forms.coordinator.seal_frame(messages, job=JOB, run_id=run, kind="round")]

    corrupt, whole = map(sealed, runs)
    assert len(whole) == 3
    asked = played.agent.session
    played.say(ROUND, [corrupt[0], corrupt[1][:-1] + b"\x01", corrupt[2]])
    assert heard["wire.corrupt"] == 1
    assert played.agent.session == asked
    played.say(ROUND, [whole[1], whole[0], whole[0]])
    assert played.agent.session == asked, "it has not come yet"
    played.say(ROUND, whole[2:])
    until(lambda: played.agent.session != asked)
    replayed = heard["message.replayed"]
    played.say(ROUND, whole * 2)
    assert heard["message.replayed"] == replayed + 2 * len(whole)


@pytest.mark.parametrize("way", ["unsigned", "by an unknown key", "by another member", "for another job", "as a task"])
def test_no_state_is_believed_that_the_coordinator_did_not_say(played: Recorded, way: str) -> None:
    state, forms = JobState(**ABOUT, phase="training").model_dump_json().encode(), Down(played)
    place = {"job": JOB, "run_id": RUN_ID}
    forged = {
        "unsigned": state,
        "by an unknown key": Speaker(Signer.new(), FLEET, 1 << 30).seal("state", state, **place),
        "by another member": forms.member.seal("state", state, **place),
        "for another job": forms.coordinator.seal("state", state, job="other", run_id=RUN_ID),
        "as a task": forms.seal(forms.coordinator, state),
    }[way]
    before = standing(played)
    played.say(STATE, [forged])
    assert standing(played) == before
    assert RUN_ID not in played.agent.inbound.replays.runs


def test_what_was_said_is_done_once_whatever_it_is_and_after_a_restart_too(played: Recorded) -> None:
    """The broker says again what the coordinator truly said: one run for each kind, none of which has ended."""
    forms, said = Down(played), list[bytes]()
    for number, message in enumerate(TO_DEVICE.values()):
        run = f"{RUN_ID}{number}"
        about = {"run_id": run} if isinstance(message, Assignment) else {}
        said.append(forms.seal(forms.coordinator, one_part(message.model_copy(update=about)), run_id=run))
    fresh = played.agent.refusals["message.replayed"]
    played.say(DOWN, said)
    assert played.agent.refusals["message.replayed"] == fresh, "the first time it is heard"
    for restarted in (False, True):
        if restarted:
            played.restart()
        before = played.agent.refusals["message.replayed"]
        played.say(DOWN, said * 2)
        assert played.agent.refusals["message.replayed"] == before + 2 * len(said)
    assert not played.trained()


def test_a_call_is_heard_once_and_after_a_restart_too_and_nothing_older_behind_it(played: Recorded) -> None:
    forms, run = Down(played), "called-once"
    receipt = TO_DEVICE[Receipt]
    before_it = forms.seal(forms.coordinator, one_part(receipt), run_id=run)
    (part,) = parts(called(played, run=run))
    call = forms.coordinator.seal("round", part, job=JOB, run_id=run)
    fresh = played.agent.refusals["message.replayed"]
    played.say(ROUND, [call])
    assert played.agent.refusals["message.replayed"] == fresh, "the first time it is heard"
    for restarted in (False, True):
        if restarted:
            played.restart()
        before = played.agent.refusals["message.replayed"]
        played.say(ROUND, [call, call])
        played.say(DOWN, [before_it])  # one counter for both: a broker cannot play one against the other
        assert played.agent.refusals["message.replayed"] == before + 3
    assert not played.trained()


def test_a_manifest_is_believed_if_the_coordinator_signed_it_for_this_very_round() -> None:
    """Models and graphs are known by the hash that their manifest names: tests/fleet/test_forged_models.py."""
    ours, other = Signer.new(), Signer.new()
    wanted = RequestedModel(JOB, RUN_ID, 1, "0" * 16)
    manifest = Manifest(
        **ABOUT, digest="0" * 64, size=9, layout=Shape(names=(), shapes=()), algorithm={}, network="mlp", sample=(4,),
        classes=3, loss="cross_entropy", codec="float32", seed=1,
    )  # fmt: skip
    plain = manifest.model_dump_json().encode()
    trust = Trust(MemoryDisk(), FLEET, ours.key)
    assert trust.manifest(ours.sign(plain), wanted) == manifest
    changed = ours.sign(plain).replace(b'"seed":1', b'"seed":2')
    for forged in (plain, other.sign(plain), changed, ours.sign(plain).replace(ours.key.encode(), other.key.encode())):
        with pytest.raises(WireError, match=r"."):
            trust.manifest(forged, wanted)
    for elsewhere in (
        replace(wanted, job="other"), replace(wanted, run_id="other"), replace(wanted, round=2),
        replace(wanted, id="1" * 16),
    ):  # fmt: skip
        with pytest.raises(WireError, match="signed for"):
            trust.manifest(ours.sign(plain), elsewhere)
    with pytest.raises(WireError, match="signed by"):
        trust.manifest(other.sign(plain), wanted, proven=True)


# ---- what a coordinator hears ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def siege() -> Iterator[Siege]:
    besieged = Siege()
    besieged.start()
    yield besieged
    besieged.end()


WAYS_UP = ("unsigned", "by an unknown key", "by another member", "of another device", "for another job", "changed")


def forged_up(siege: Siege, way: str, part: bytes) -> tuple[str, bytes]:
    """The code that it is counted under, and the message on the victim's topic."""
    victim, member = siege.puppets[VICTIM].speaker, siege.puppets[OTHER].speaker
    place = {"job": JOB, "run_id": siege.tasks[VICTIM].run_id, "device": VICTIM}
    stranger = Speaker(Signer.new(), FLEET, 1 << 30)
    match way:
        case "unsigned":
            return "message.unsigned", part
        case "by an unknown key":
            return "message.signature", stranger.seal("up", part, **place)
        case "by another member":
            return "message.signature", member.seal("up", part, **place)
        case "of another device":
            return "message.signature", member.seal("up", part, **{**place, "device": OTHER})
        case "for another job":
            return "message.signature", victim.seal("up", part, **{**place, "job": "other"})
        case _:
            sealed = bytearray(victim.seal("up", part, **place))
            sealed[-1] ^= 1
            return "message.signature", bytes(sealed)


def blamed(siege: Siege) -> list[dict[str, Any]]:
    """What was held against the victim, and what was taken for its word."""
    events = ("quarantined", "refused", "answered", "declined", "busy", "progressed", "certified", "lost")
    return [told for event in events for told in siege.happened(event, device=VICTIM)]


@pytest.mark.parametrize("kind", TO_COORDINATOR, ids=lambda one: one.__name__)
@pytest.mark.parametrize("way", WAYS_UP)
def test_nothing_counts_that_the_device_did_not_say(siege: Siege, kind: type[BaseModel], way: str) -> None:
    run = siege.tasks[VICTIM].run_id
    message = TO_COORDINATOR[kind]
    if "run_id" in type(message).model_fields:
        message = message.model_copy(update={"run_id": run})
    code, forged = forged_up(siege, way, one_part(message))
    before, counted = blamed(siege), siege.refusals(code)
    siege.attacker.publish(topics.up(FLEET, JOB, VICTIM), forged)
    siege.settled()
    assert siege.refusals(code) == counted + 1
    assert blamed(siege) == before


@pytest.mark.parametrize("way", ["unsigned", "by an unknown key", "by another member", "of another device"])
@pytest.mark.parametrize("online", [True, False], ids=["here", "gone"])
def test_no_presence_is_believed_that_the_device_did_not_sign(siege: Siege, way: str, online: bool) -> None:
    presence = Presence(online=online, installation=VICTIM, birth=99).model_dump_json().encode()
    member = siege.puppets[OTHER].speaker
    forged = {
        "unsigned": presence,
        "by an unknown key": Speaker(Signer.new(), FLEET, 99).seal("presence", presence, device=VICTIM),
        "by another member": member.seal("presence", presence, device=VICTIM),
        "of another device": member.seal("presence", presence, device=OTHER),
    }[way]
    joined = siege.happened("joined", device=VICTIM)
    siege.attacker.publish(topics.presence(FLEET, VICTIM), forged)
    siege.settled()
    assert siege.happened("joined", device=VICTIM) == joined
    assert not siege.happened("lost", device=VICTIM)
    assert not siege.happened("quarantined", device=VICTIM)


@pytest.mark.parametrize("kind", TO_COORDINATOR, ids=lambda one: one.__name__)
def test_what_a_device_said_counts_once_and_after_a_restart_of_the_coordinator_too(kind: type[BaseModel]) -> None:
    """A coordinator that comes back knows nothing; the device announces itself to it, and what is older is old."""
    speaker = Speaker(Signer.new(), FLEET, 1)
    presence = Presence(online=True, installation=VICTIM, birth=1)

    def announced() -> bytes:
        return speaker.seal("presence", presence.model_dump_json().encode(), device=VICTIM)

    def met(proofs: DeviceAuthentication) -> DeviceAuthentication:
        envelope = proofs.of_presence(VICTIM, announced())
        proofs.is_news(VICTIM, envelope, presence)
        proofs.meet(VICTIM)
        return proofs

    first = met(DeviceAuthentication(FLEET, JOB, DeviceKeys()))
    said = speaker.seal("up", one_part(TO_COORDINATOR[kind]), job=JOB, run_id=RUN_ID, device=VICTIM)
    assert first.of_message(VICTIM, said)
    restarted = DeviceAuthentication(FLEET, JOB, DeviceKeys())
    with pytest.raises(signed.Unproven, match="has not announced itself"):
        restarted.of_message(VICTIM, said)
    for proofs in (first, met(restarted)):
        with pytest.raises(signed.Unproven, match="came again"):
            proofs.of_message(VICTIM, said)


def test_an_envelope_is_good_at_one_place_only() -> None:
    speaker = Speaker(Signer.new(), FLEET, 1)
    place = {"job": JOB, "run_id": RUN_ID, "device": VICTIM}
    envelope = signed.opened(speaker.seal("up", b"x", **place))
    envelope.prove(SigningContext("up", FLEET, **place))
    elsewhere = [
        SigningContext("down", FLEET, **place),
        SigningContext("up", "other", **place),
        SigningContext("up", FLEET, **{**place, "job": "other"}),
        SigningContext("up", FLEET, **{**place, "run_id": "other"}),
        SigningContext("up", FLEET, **{**place, "device": OTHER}),
        SigningContext("presence", FLEET, device=VICTIM),
    ]
    for where in elsewhere:
        with pytest.raises(signed.Unproven):
            envelope.prove(where)


def test_no_envelope_with_a_bit_changed_is_believed() -> None:
    speaker, place = Speaker(Signer.new(), FLEET, 1), {"job": JOB, "run_id": RUN_ID, "device": VICTIM}
    good = speaker.seal("up", one_part(TO_COORDINATOR[DeclinedMessage]), **place)
    for at in range(len(good)):
        bad = bytearray(good)
        bad[at] ^= 1 << at % 8
        with suppress(WireError):
            envelope = signed.opened(bytes(bad))
            if envelope.key == speaker.key:  # or it is another one's, and nobody asks further
                envelope.prove(SigningContext("up", FLEET, **place))
                pytest.fail(f"byte {at} of the envelope counts for nothing")
