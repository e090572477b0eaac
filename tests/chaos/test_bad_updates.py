"""One device that sends everything that can be wrong: each is named, the process lives, the round goes on."""

import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from puppet import Puppet, answer, noise
from threaded_fleet import ThreadedFleet

from device_agent.durable import identity
from edgefl.system.disk import FolderDisk
from edgefl.wire import signed, topics
from edgefl.wire.messages import Assignment, Presence, Tensor
from edgefl.wire.signed import Speaker
from edgefl.wire.transport import Message, TransportEvent

BAD = "device-03"
HUGE = (10**10,)


def threaded_fleet(folder: Path, rounds: int, deadline: float = 60.0, **guards: Any) -> ThreadedFleet:
    fleet = ThreadedFleet(
        folder,
        run={"rounds": rounds},
        task={"partition": {"kind": "iid", "devices": 4}},
        rounds={"cohort": 4, "quorum": 3, "deadline": deadline},
        guards={"strikes": 1000, **guards},
    )
    del fleet.data[BAD]  # the puppet's
    return fleet


def good(size: int) -> dict[str, Any]:
    return {"delta": noise(size, 1), "extra/dc": noise(size, 2)}


def with_(size: int, name: str, value: Any) -> dict[str, Any]:
    return {**good(size), name: value}


def spoiled(size: int, number: float) -> dict[str, Any]:
    arrays = good(size)
    arrays["delta"][3] = number
    return arrays


def tensor(**other: Any) -> tuple[Tensor, ...]:
    plain = {"name": "delta", "kind": "raw", "dtype": "<f4", "shape": (1,), "bytes": 0}
    return (Tensor.model_construct(**{**plain, **other}),)


WRONG: dict[str, Any] = {
    "not a number": ("update.not_finite", lambda p, t, n: answer(p, t, spoiled(n, np.nan))),
    "infinite": ("update.not_finite", lambda p, t, n: answer(p, t, spoiled(n, -np.inf))),
    "too few numbers": ("wire.shape", lambda p, t, n: answer(p, t, with_(n, "delta", noise(n - 1, 1)))),
    "another shape": ("wire.shape", lambda p, t, n: answer(p, t, with_(n, "delta", noise(n, 1).reshape(-1, 2)))),
    "another type": ("wire.shape", lambda p, t, n: answer(p, t, with_(n, "delta", np.zeros(n)))),
    "no delta": ("wire.shape", lambda p, t, n: answer(p, t, {"extra/dc": noise(n, 2)})),
    "no extra": ("update.extra", lambda p, t, n: answer(p, t, {"delta": noise(n, 2)})),
    "one extra too many": ("update.extra", lambda p, t, n: answer(p, t, with_(n, "extra/x", noise(n, 1)))),
    "a path for a name": ("update.unknown_tensor", lambda p, t, n: answer(p, t, with_(n, "../../x", noise(n, 1)))),
    "absurdly long": ("update.norm", lambda p, t, n: answer(p, t, with_(n, "delta", 1e9 * noise(n, 1)))),
    "absurd beside it": ("update.norm", lambda p, t, n: answer(p, t, with_(n, "extra/dc", 1e35 * noise(n, 1)))),
    "no weight": ("wire.malformed", lambda p, t, n: answer(p, t, good(n), weight=0.0)),
    "negative weight": ("wire.malformed", lambda p, t, n: answer(p, t, good(n), weight=-1.0)),
    "weight 2^63": ("wire.malformed", lambda p, t, n: answer(p, t, good(n), weight=2.0**63)),
    "weight not a number": ("wire.malformed", lambda p, t, n: answer(p, t, good(n), weight=float("nan"))),
    "of another device": ("update.foreign", lambda p, t, n: answer(p, t, good(n), device="device-00")),
    "of another run": ("update.foreign", lambda p, t, n: answer(p, t, good(n), run_id="older")),
    "from another model": ("update.model", lambda p, t, n: answer(p, t, good(n), model="f" * 16)),
    "bfloat16": ("wire.dtype", lambda p, t, n: answer(p, t, {}, tensors=tensor(dtype="bfloat16"))),
    "40 GB": ("wire.too_large", lambda p, t, n: answer(p, t, {}, tensors=tensor(kind="float32", shape=HUGE))),
    "a tensor twice": ("wire.malformed", lambda p, t, n: answer(p, t, {}, tensors=tensor(shape=(0,)) * 2)),
    "pickle": ("wire.magic", lambda p, t, n: pickle.dumps([1, 2, 3]) * 20),
}  # fmt: skip


def test_every_bad_update_is_named_and_costs_nothing(tmp_path: Path) -> None:
    cases = dict(enumerate(WRONG.values(), start=1))
    here = threaded_fleet(tmp_path, len(cases))
    size = here.job.model.layout.size

    def act(puppet: Puppet, task: Assignment) -> None:
        puppet.say(cases[task.round][1](puppet, task, size))
        puppet.decline(task)

    puppet = Puppet(BAD, here.broker.client(BAD), act, job="chaos")
    here.start()
    puppet.start()
    here.wait_for(event="done")
    codes = [event["code"] for event in here.events if event["event"] == "refused"]
    expected = [code for code, _ in cases.values()]
    assert codes == expected
    assert [verdict for verdict, _ in puppet.verdicts] == ["refused"] * len(cases)  # or each would be offered again


@pytest.mark.parametrize("ahead", [1, 1000])
def test_an_answer_to_a_round_that_is_not_yet_is_refused(ahead: int, tmp_path: Path) -> None:
    here = threaded_fleet(tmp_path, 2)

    def act(puppet: Puppet, task: Assignment) -> None:
        puppet.say(answer(puppet, task, good(here.job.model.layout.size), round=task.round + ahead))
        puppet.decline(task)

    puppet = Puppet(BAD, here.broker.client(BAD), act, job="chaos")
    here.start()
    puppet.start()
    here.wait_for(event="done")
    assert puppet.verdicts == [("refused", "future")] * 2


def test_a_device_that_does_not_stop_goes_into_quarantine_and_the_run_goes_on(tmp_path: Path) -> None:
    here = threaded_fleet(tmp_path, 3, deadline=1.0, strikes=3)

    def act(puppet: Puppet, task: Assignment) -> None:
        for _ in range(5):
            puppet.publish(b"nonsense")

    puppet = Puppet(BAD, here.broker.client(BAD), act, job="chaos")
    here.start()
    puppet.start()
    assert here.wait_for(event="quarantined")["device"] == BAD
    here.wait_for(event="done")
    assert here.coordinator is not None
    assert here.coordinator.shell.state.refusals == {"wire.truncated": 3, "device.quarantined": 2}
    assert puppet.asked == 1


def test_a_device_whose_quarantine_is_over_is_asked_again(tmp_path: Path) -> None:
    here = threaded_fleet(tmp_path, 3, strikes=1, quarantine_seconds=0.2)
    quiet = threading.Event()

    def act(puppet: Puppet, task: Assignment) -> None:
        if quiet.is_set():
            puppet.decline(task)
        else:
            quiet.set()
            puppet.publish(b"nonsense")

    puppet = Puppet(BAD, here.broker.client(BAD), act, job="chaos")
    here.data.pop("device-02")  # the run cannot go on without the puppet: three must be there
    here.start()
    puppet.start()
    gone = Puppet("device-02", here.broker.client("device-02"), lambda p, t: p.decline(t), job="chaos")
    gone.start()
    here.wait_for(event="quarantined")
    here.wait_for(event="asked", devices=(BAD,))
    assert here.coordinator is not None
    here.coordinator.stop()


def test_the_last_will_of_an_earlier_life_does_not_stay_at_the_broker(tmp_path: Path) -> None:
    here = threaded_fleet(tmp_path, 2)
    topic, corrected = topics.presence("default", "device-00"), threading.Event()

    def listen(event: TransportEvent) -> None:
        if isinstance(event, Message) and not event.retained:
            presence = Presence.model_validate_json(signed.opened(event.payload).payload)
            if willed.is_set() and presence.online:
                corrected.set()

    willed = threading.Event()
    watcher = here.broker.client("watcher")
    watcher.start(listen)
    watcher.subscribe(topic)
    here.start()
    here.wait_for(event="joined", device="device-00")
    installation = (here.folder / "device-00" / "birth").read_text().split()[0]
    will = Presence(online=False, installation=installation, birth=0)
    willed.set()
    signer = identity.signer(FolderDisk(here.folder / "device-00"))
    message = Speaker(signer, "default", 0).seal("presence", will.model_dump_json().encode(), device="device-00")
    watcher.publish(topic, message, retain=True)
    assert corrected.wait(60)
    assert here.coordinator is not None
    here.coordinator.stop()
