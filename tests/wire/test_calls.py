"""A call to all devices of a round: each finds its own slot, and learns nothing of the others."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefl.base.errors import WireError
from edgefl.wire.calls import Callee, call, own_task
from edgefl.wire.messages import CALL, SLOT, Assignment, Call, checked, frame, read

TASK = Assignment(job="j", run_id="r", round=3, attempt=1, model="0" * 16)
NAMES = st.text("abcdefgh", min_size=1, max_size=8)
CALLEES = st.builds(
    Callee,
    device=NAMES,
    installation=NAMES.map(lambda name: f"secret-of-{name}"),
    counted=st.integers(0, 2**31),
    batches=st.none() | st.integers(1, 2**31),
    seconds=st.none() | st.floats(1e-3, 1e9),
)
TWO = [Callee("pi-01", "9f86d081", 2, 50, 12.5), Callee("pi-02", "60303ae2", 1)]


def slots(of: Call) -> set[bytes]:
    return {of.slots[at : at + SLOT] for at in range(0, len(of.slots), SLOT)}


@given(st.lists(CALLEES, min_size=1, max_size=9, unique_by=lambda one: one.device), st.integers(0, 2**63 - 1))
def test_each_device_gets_the_very_task_that_it_would_have_got_alone(callees: list[Callee], number: int) -> None:
    (heard, came) = read(CALL, frame(call("f", TASK, number, callees, b"{}"), (b"a model",)), limit=100)
    for one in callees:
        task = own_task("f", heard, one.device, one.installation, came.body)
        own = {"counted": one.counted, "batches": one.batches, "seconds": one.seconds, "installation": one.installation}
        assert task is not None
        assert task.model_copy(update={"enclosed": None}) == TASK.model_copy(update=own)
        assert task.enclosed is not None
        assert (task.enclosed.manifest, task.enclosed.frame) == (b"{}", b"a model")


@pytest.mark.parametrize(
    "other",
    [{"fleet": "g"}, {"device": "pi-02"}, {"device": "pi-03"}, {"installation": "60303ae2"}],
    ids=["fleet", "called", "stranger", "installation"],
)
def test_nobody_else_finds_a_slot(other: dict[str, str]) -> None:
    me = {"fleet": "f", "device": "pi-01", "installation": "9f86d081"}
    heard = call("f", TASK, 7, TWO)

    def found(fleet: str, device: str, installation: str) -> Assignment | None:
        return own_task(fleet, heard, device, installation, b"")

    assert found(**me) is not None
    assert found(**me | other) is None


def test_a_call_names_nobody_and_two_of_them_have_nothing_in_common() -> None:
    calls = [call("f", TASK, number, TWO) for number in (7, 8)]
    for one in calls:
        said = frame(one)
        assert not any(word.encode() in said for callee in TWO for word in (callee.device, callee.installation))
    assert slots(calls[0]).isdisjoint(slots(calls[1]))
    pieces = [{slot[at : at + 4] for slot in slots(one) for at in range(0, SLOT, 4)} for one in calls]
    assert pieces[0].isdisjoint(pieces[1]), "no number of a device can be followed from round to round"
    alike = [call("f", TASK, 7, [replace(one, counted=2, batches=50, seconds=12.5) for one in TWO])]
    assert len({slot[16:] for slot in slots(alike[0])}) == 2, "nor compared with another's"


def test_slots_stand_in_no_order_of_names() -> None:
    orders = set()
    for number in range(16):
        heard = call("f", TASK, number, TWO)
        alone = slots(call("f", TASK, number, TWO[:1]))
        orders.add(heard.slots[:SLOT] in alone)
    assert orders == {True, False}


def test_a_call_without_a_model_says_so() -> None:
    heard = call("f", TASK, 7, TWO)
    task = own_task("f", heard, "pi-02", "60303ae2", b"")
    assert task is not None
    assert task.enclosed is None


@pytest.mark.parametrize("length", [0, 1, SLOT - 1, SLOT + 1])
def test_slots_of_another_size_are_refused(length: int) -> None:
    told = {"kind": "call", "task": TASK.model_dump(), "number": 1, "slots": bytes(length)}
    with pytest.raises(WireError, match="slots"):
        checked(CALL, told)


@pytest.mark.parametrize("numbers", [{"counted": 2**31 + 1}, {"seconds": float("nan")}, {"seconds": -1.0}])
def test_numbers_that_no_task_can_have_are_refused(numbers: dict[str, float]) -> None:
    heard = call("f", TASK, 7, [replace(TWO[0], **numbers)])  # type: ignore[arg-type]  # numbers all the same
    with pytest.raises(WireError, match="a slot that counts"):
        own_task("f", heard, "pi-01", "9f86d081", b"")
