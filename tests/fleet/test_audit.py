"""The audit log: who did what, in a file that shows whether it was changed afterwards."""

import json
from contextlib import suppress
from pathlib import Path
from random import Random
from threading import Thread

import pytest

from edgefl.base.errors import StoreError
from edgefl.fleet import audit
from edgefl.fleet.audit import AuditHead, AuditLog, Deed, verify
from edgefl.system.disk import FolderDisk
from edgefl.wire.signing import Signer
from tools.failing_disk import FailingDisk, PowerCut

SIGNER = Signer.new()


@pytest.fixture
def book():
    log = AuditLog(FailingDisk(), SIGNER)
    for name in ("a", "b", "c"):
        log.write(Deed("ann", "run.cancel", "10.0.0.7", "north", name), 1000.0)
    return log


def lines(book):
    return (book.disk.read(audit.NAME) or b"").splitlines(keepends=True)


def fault(book, *changed, head=None):
    book.disk.write(audit.NAME, b"".join(changed))
    return verify(book.disk, SIGNER.key, head)


def test_a_line_says_who_did_what_when_from_where_and_how_it_ended(book):
    first = next(book.entries())
    assert (first.who, first.what, first.origin, first.fleet, first.subject, first.outcome) == (
        "ann",
        "run.cancel",
        "10.0.0.7",
        "north",
        "a",
        "done",
    )
    assert first.at.isoformat() == "1970-01-01T00:16:40+00:00"


def test_an_untouched_log_is_whole(book):
    assert verify(book.disk, SIGNER.key) == ""
    assert verify(book.disk, SIGNER.key, book.head()) == ""


def test_a_changed_line_is_seen(book):
    first, *rest = lines(book)
    assert fault(book, first.replace(b'"ann"', b'"bob"'), *rest) == "line 1 is not what its key signed"


def test_a_line_that_was_taken_out_or_moved_is_seen(book):
    a, b, c = lines(book)
    assert "line 2 does not follow" in fault(book, a, c)
    assert "line 2 does not follow" in fault(book, a, c, b)
    assert "line 1 does not follow" in fault(book, b, c)


def test_lines_missing_at_the_end_are_seen_by_the_head(book):
    head, (a, b, _) = book.head(), lines(book)
    assert "lines at the end are missing" in fault(book, a, b)
    assert "does not contain the head" in fault(book, a, b, head=head)


def test_a_line_of_another_key_is_seen(book):
    other = AuditLog(FailingDisk(), Signer.new())
    other.write(Deed("eve", "run.cancel"), 0.0)
    assert "another key" in verify(other.disk, SIGNER.key)


def test_a_log_that_was_written_anew_with_the_same_key_lacks_a_head_that_was_noted(book):
    noted, fresh = book.head(), AuditLog(FailingDisk(), SIGNER)
    for name in ("a", "b", "c", "d"):
        fresh.write(Deed("ann", "run.pause", subject=name), 1000.0)
    assert verify(fresh.disk, SIGNER.key) == ""
    assert "does not contain the head" in verify(fresh.disk, SIGNER.key, noted)


def test_a_fact_of_the_server_has_one_line(book):
    for _ in range(2):
        book.write(Deed("", "run is finished", sequence=7), 0.0)
        book.write(Deed("ann", "run.submit"), 0.0)
    assert [entry.sequence for entry in book.entries()] == [None, None, None, 7, None, None]


def test_a_line_that_a_power_cut_tore_goes_and_the_next_one_follows(book):
    raw = book.disk.read(audit.NAME) or b""
    book.disk.write(audit.NAME, raw[:-20])
    book.write(Deed("ann", "run.submit"), 0.0)
    assert verify(book.disk, SIGNER.key) == ""
    assert [entry.number for entry in book.entries()] == [1, 2, 3]


def test_a_damaged_end_is_not_continued(book):
    book.disk.write(audit.NAME, b"".join([*lines(book), b"rubbish\n"]))
    with pytest.raises(StoreError, match="damaged"):
        book.write(Deed("ann", "run.submit"), 0.0)


def test_a_power_cut_at_any_moment_leaves_a_whole_log():
    for power in range(12):
        disk = FailingDisk()
        disk.power = power
        with suppress(PowerCut):
            for name in "abc":
                AuditLog(disk, SIGNER).write(Deed("ann", "x", subject=name), 0.0)
        disk.crash(Random(power))
        AuditLog(disk, SIGNER).write(Deed("ann", "after"), 0.0)
        assert verify(disk, SIGNER.key) == ""


def test_two_processes_append_one_after_the_other(tmp_path: Path):
    AuditLog.opened(tmp_path)

    def write(who):
        for _ in range(20):
            AuditLog.opened(tmp_path).write(Deed(who, "x"), 0.0)

    threads = [Thread(target=write, args=(who,)) for who in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    book = AuditLog.opened(tmp_path)
    assert (verify(FolderDisk(tmp_path), book.signer.key), book.head().number) == ("", 60)


def test_no_text_can_pretend_to_be_a_line(book):
    book.write(Deed('ann\n{"number":5}', "x" * 10_000), 0.0)
    assert verify(book.disk, SIGNER.key) == ""
    last = json.loads(lines(book)[-1])
    assert (last["number"], len(last["what"])) == (4, audit.LONGEST)


def test_a_head_can_be_written_down_and_read(book):
    assert AuditHead.parse(str(book.head())) == book.head()
