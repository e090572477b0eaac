"""Webhooks, called over real HTTP on loopback: signed, tried again, never led elsewhere, never in the run's way."""

import hashlib
import hmac
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from receiver import Receiver, receiving
from stories import DONE, ROUNDS, STARTED, STORY

from edgefl.base.events import Certificate, DataBroken, DataMended, Failed, Joined, Lost
from edgefl.job.config.export import Export, Webhook
from edgefl.watch.exporters.opening import Exporters
from edgefl.watch.exporters.webhooks import ATTEMPTS, WebhookCaller

SECRET = "a long word"
DAY = 86_400.0


@pytest.fixture
def receiver():
    with receiving() as one:
        yield one


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def caller(receiver: Receiver, folder: Path, **rules: Any) -> tuple[WebhookCaller, Clock]:
    clock = Clock()
    hook = Webhook(url=receiver.url, secret="env:HOOK_SECRET", **rules)
    return WebhookCaller(STARTED, hook, folder / "webhook-1.json", clock=clock), clock


def test_the_end_of_a_run_is_told_and_signed(receiver: Receiver, tmp_path: Path) -> None:
    hook = Webhook(url=receiver.url, secret="env:HOOK_SECRET", stalled_seconds=1e12)  # the story is of long ago
    exporters = Exporters(Export(webhooks=(hook,)), tmp_path, {})
    for fact in STORY:
        exporters(fact)
    exporters.close()
    target, finished = receiver.messages()
    assert (target["event"], target["round"]) == ("target_reached", 3)
    assert finished["event"] == "run_finished"
    assert finished["text"] == "run 'sensors' has finished after 3 rounds, accuracy 75.0%"
    assert (finished["run"], finished["run_id"], finished["at"]) == ("sensors", STARTED.run_id, 1040.0)
    for path, headers, body in receiver.calls:
        assert path == "/hook"
        stamped = headers["X-Edgefl-Timestamp"].encode() + b"." + body
        expected = hmac.new(SECRET.encode(), stamped, hashlib.sha256).hexdigest()
        assert headers["X-Edgefl-Signature"] == f"sha256={expected}"
        assert headers["X-Edgefl-Id"] == json.loads(body)["id"]
        assert SECRET.encode() not in body


def test_what_was_delivered_is_not_told_again_after_a_restart(receiver: Receiver, tmp_path: Path) -> None:
    for _ in range(2):
        hook, clock = caller(receiver, tmp_path)
        hook(DONE)
        hook.woken(clock.now)
        hook.close()
    assert [message["event"] for message in receiver.messages()] == ["target_reached", "run_finished"]


def test_a_receiver_that_fails_is_called_again_later_and_later_with_the_same_id(
    receiver: Receiver, tmp_path: Path
) -> None:
    receiver.answers = [500, 503, 429]
    hook, clock = caller(receiver, tmp_path, events=["run_finished"])
    hook(DONE)
    moments = []
    while (due := hook.deadline()) is not None and len(receiver.calls) < 4:
        clock.now = max(clock.now, due)
        moments.append(clock.now)
        hook.woken(clock.now)
    assert moments == [1000.0, 1001.0, 1003.0, 1007.0]
    assert len({headers["X-Edgefl-Id"] for _, headers, _ in receiver.calls}) == 1
    assert hook.pending == []


def test_one_that_never_works_is_given_up(receiver: Receiver, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    receiver.answers = [500] * 100
    hook, clock = caller(receiver, tmp_path, events=["run_finished"])
    hook(DONE)
    while hook.pending:
        clock.now += 1000.0
        hook.woken(clock.now)
    assert len(receiver.calls) == ATTEMPTS
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "it answered 500" in line
    assert "127.0.0.1" not in line, "an address may be a secret"


@pytest.mark.parametrize("status", [400, 401, 404, 410])
def test_one_that_does_not_want_it_is_not_asked_twice(status: int, receiver: Receiver, tmp_path: Path) -> None:
    receiver.answers = [status]
    hook, clock = caller(receiver, tmp_path, events=["run_finished"])
    hook(DONE)
    hook.woken(clock.now)
    assert (len(receiver.calls), hook.pending) == (1, [])


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_nobody_is_followed_elsewhere(status: int, receiver: Receiver, tmp_path: Path) -> None:
    with receiving() as elsewhere:
        receiver.answers, receiver.location = [status] * 9, elsewhere.url
        hook, clock = caller(receiver, tmp_path, events=["run_finished"])
        hook(DONE)
        hook.woken(clock.now)
        assert (len(receiver.calls), hook.pending) == (1, [])
    assert elsewhere.calls == []


def test_one_that_is_slow_or_not_there_is_tried_again(receiver: Receiver, tmp_path: Path) -> None:
    receiver.slow.clear()
    hook, clock = caller(receiver, tmp_path, events=["run_finished"], timeout=0.05)
    hook(DONE)
    hook.woken(clock.now)
    assert [pending.attempts for pending in hook.pending] == [1]
    receiver.slow.set()
    hook.rules = hook.rules.model_copy(update={"timeout": 30.0})
    hook.woken(clock.now + 10)
    assert hook.pending == []
    hook.url = "http://127.0.0.1:1/nobody"
    hook(Failed("no disk", at=1050.0))
    assert hook.pending == [], "only what is wanted is told"


def test_a_slow_receiver_does_not_hold_up_the_run(receiver: Receiver, tmp_path: Path) -> None:
    receiver.slow.clear()
    hook = Webhook(url=receiver.url, stalled_seconds=1e12)
    exporters = Exporters(Export(webhooks=(hook,)), tmp_path, {})
    for fact in STORY:
        exporters(fact)  # comes back at once: the receiver answers nobody
    receiver.wait(1)
    receiver.slow.set()
    exporters.close()
    assert [message["event"] for message in receiver.messages()] == ["target_reached", "run_finished"]


def test_devices_that_are_away_together_are_told_of_together_and_once(receiver: Receiver, tmp_path: Path) -> None:
    hook, clock = caller(receiver, tmp_path, device_away_seconds=60, stalled_seconds=1e6)
    for fact in (STARTED, Joined("a", at=1000.0), Lost("a", at=1001.0), Lost("b", at=1001.0), Lost("c", at=1001.0)):
        hook(fact)
    hook(Joined("c", at=1010.0))
    hook(Lost("d", "rests: 84.0 °C, at most 70", resting=True, at=1001.0))
    assert hook.deadline() == 1061.0
    for now in (1060.0, 1061.0, 1062.0, 2000.0):
        clock.now = now
        hook.woken(now)
    (message,) = receiver.messages()
    assert (message["event"], message["devices"]) == ("device_away", ["a", "b"])
    assert message["text"] == "away for 60 s or more: a, b"
    hook(Joined("a", at=2000.0))
    hook(Lost("a", at=2001.0))
    hook.woken(2100.0)
    assert [one["devices"] for one in receiver.messages()] == [["a", "b"], ["a"]]


def test_certificates_that_end_are_told_of_once(receiver: Receiver, tmp_path: Path) -> None:
    hook, clock = caller(receiver, tmp_path, certificate_days=14, events=["certificate_ends"])
    for _ in range(2):  # it goes and comes
        hook(Certificate("a", 1000.0 + 10 * DAY))
        hook(Certificate("b", 1000.0 + 30 * DAY))
        hook.woken(clock.now)
    assert hook.deadline() == 1000.0 + 16 * DAY
    for day in range(40):
        hook.woken(1000.0 + day * DAY)
    assert [call["devices"] for call in receiver.messages()] == [["a"], ["b"]]
    hook(Certificate("a", 1000.0 + 100 * DAY))  # a new one
    for day in range(100):
        hook.woken(1000.0 + day * DAY)
    assert [call["devices"] for call in receiver.messages()] == [["a"], ["b"], ["a"]]


def test_data_that_break_are_told_of_once_and_again_when_they_are_mended(receiver: Receiver, tmp_path: Path) -> None:
    hook, clock = caller(receiver, tmp_path, device_away_seconds=60)
    hook(Joined("a", at=1000.0))
    for at in (1001.0, 1002.0):  # it comes again
        hook(Joined("a", stale=True, at=at))
        hook(DataBroken("a", "line 32", 86400.0, at=at))
    hook(Lost("b", at=1002.0))
    hook(DataBroken("b", "the file is not there", None, at=1003.0))
    hook(DataMended("a", at=1004.0))
    clock.now = 2000.0
    hook.woken(clock.now)
    told = [(one["event"], one["devices"]) for one in receiver.messages()]
    assert told == [("data_broken", ["a"]), ("data_broken", ["b"]), ("data_mended", ["a"])], "none of them is away"
    assert receiver.messages()[1]["text"] == "b has no usable data: the file is not there"


def test_a_run_that_stalls_is_told_of_once_until_it_goes_on(receiver: Receiver, tmp_path: Path) -> None:
    hook, _ = caller(receiver, tmp_path, stalled_seconds=100)
    hook(STARTED)
    for now in (1050.0, 1100.0, 1150.0):
        hook.woken(now)
    hook(ROUNDS[0].__class__(1, at=1200.0))
    for now in (1250.0, 1300.0, 1400.0):
        hook.woken(now)
    assert [message["event"] for message in receiver.messages()] == ["run_stalled", "run_stalled"]
    hook(DONE)
    hook.woken(9999.0)
    assert [message["event"] for message in receiver.messages()][2:] == ["target_reached", "run_finished"]
