"""A back-up holds everything of one moment, whatever goes on; a restore believes nothing that it can check."""

import json
import resource
import signal
import tarfile
import threading
from datetime import datetime, timedelta, timezone
from hashlib import sha256
from io import BytesIO
from pathlib import Path

import pytest

from coordinator.decide.rounds import DeviceAnswered, DeviceJoined, RoundMerged, Rounds, Rules, step
from coordinator.durable import segments
from coordinator.durable.journal import KEPT, AnswerFrame, Journal
from coordinator.shell import known_runs
from edgefl.base.errors import ConfigError, StoreError
from edgefl.cli.backup import named
from edgefl.fleet import members
from edgefl.fleet.administration import FleetAdministration
from edgefl.fleet.audit import AuditLog, Deed, verify
from edgefl.server import backup, sealed_stream
from edgefl.server import folder as places
from edgefl.server.backup import back_up
from edgefl.server.backup_file import DESCRIPTION, MANIFEST, is_name
from edgefl.server.decide.runs import QueuedRun, RunSchedule, ServerState
from edgefl.server.decide.vocabulary import Submission
from edgefl.server.durable import queue_file, rows
from edgefl.server.durable.rows import RowStore
from edgefl.server.restore import Destination, restore
from edgefl.system.disk import FolderDisk
from edgefl.system.locks import own

NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=timezone.utc)
LATER = NOW + timedelta(days=9)
HERE = Destination()


def home(path, monkeypatch):
    """From now on, this is the operator's state folder."""
    path.mkdir(exist_ok=True)
    monkeypatch.setenv("XDG_STATE_HOME", str(path))
    return path / "edgefl"


@pytest.fixture
def old(tmp_path, monkeypatch):
    """A machine with a fleet of three, a server that has queued runs, and the folders of these."""
    state = home(tmp_path / "old", monkeypatch)
    fleet = FleetAdministration.new("default", ["127.0.0.1"], 18883, NOW)
    for name in ("pi-01", "pi-02", "pi-03"):
        fleet.add(name, NOW)
    assert fleet.coordinator_key
    AuditLog.opened(places.folder()).write(Deed("ann", "run.submit"), NOW.timestamp())
    inside, outside = places.folder() / places.RUNS, tmp_path / "elsewhere"
    for run in (inside / "first", outside / "second"):
        begin(run)
    queue(inside, outside)
    return state


def begin(folder):
    Journal(FolderDisk(folder)).set(name=folder.name)
    (folder / "big.bin").write_bytes(bytes(range(256)) * 1000)


def queue(inside, outside):
    def run(name, folder, phase="working"):
        about = Submission(name, "default", "", (f"run.folder={folder}",), "/gone/files", str(folder))
        return QueuedRun(name, 1, about, "ann", phase, 1.0, started=2.0)

    runs = {
        "first": run("first", inside),
        "second": run("second", outside),
        "third": run("third", outside),
        "over": run("over", outside, "finished"),
    }
    nightly = Submission("night", "default", "", (f"run.folder={inside}", f"run.from={inside}/first"), "", str(inside))
    state = ServerState(2, 5, runs, {"night": RunSchedule("night", nightly, "ann", 0.0)})
    RowStore(FolderDisk(places.folder())).write(queue_file.changes(ServerState(), state))


def nobody(_description, _listed):
    return ()


def brought(path, ask=nobody, key=None, to=HERE):
    return restore(path, key, to, ask, "ann@new", LATER)


def queued():
    return queue_file.read(RowStore(FolderDisk(places.folder())), 2)


def test_everything_is_there_on_another_machine(old, tmp_path, monkeypatch):
    out = tmp_path / "out.tar"
    copied = back_up(out, NOW, runs=[tmp_path / "elsewhere" / "second"])
    assert copied.missing == (str(tmp_path / "elsewhere" / "third"),)
    assert out.stat().st_mode & 0o777 == 0o600
    before = {path.relative_to(old): path.read_bytes() for path in old.rglob("*.key")}
    new = home(tmp_path / "new", monkeypatch)
    done = brought(out)
    assert {path.relative_to(new): path.read_bytes() for path in new.rglob("*.key")} == before
    fleet = FleetAdministration("default")
    assert list(fleet.members.active()) == ["pi-01", "pi-02", "pi-03"]
    inside = new / "server" / "runs"
    assert done.runs == (inside / "first", inside / "second")
    assert (inside / "first" / "big.bin").stat().st_size == 256_000
    assert {run.folder for run in known_runs.known()} == set(done.runs)
    assert not [path for path in new.rglob("*") if path.is_file() and path.stat().st_mode & 0o077]


def test_the_queue_knows_where_its_runs_are_now(old, tmp_path, monkeypatch):
    back_up(tmp_path / "out.tar", NOW, runs=[tmp_path / "elsewhere"])
    (tmp_path / "elsewhere").rename(tmp_path / "gone")
    inside = home(tmp_path / "new", monkeypatch) / "server" / "runs"
    elsewhere = tmp_path / "here"
    done = brought(tmp_path / "out.tar", to=Destination(runs=elsewhere, beside=tmp_path))
    state = queued()
    assert state.runs["first"].submission.folder == str(inside)
    assert state.runs["first"].submission.sets == (f"run.folder={inside}",)
    assert state.runs["first"].submission.beside == str(tmp_path)
    assert state.runs["first"].phase == "working"
    assert state.runs["second"].submission.folder == str(elsewhere)
    assert state.schedules["night"].submission.sets == (f"run.folder={inside}", f"run.from={inside}/first")
    assert state.runs["third"].phase == "failed"
    assert "submit it again under another run.name" in state.runs["third"].reason
    assert state.runs["over"].phase == "finished"
    assert [line.split(":")[0] for line in done.cautions] == ["run 'third' does not go on"]


def test_files_that_run_files_name_are_asked_for(old, tmp_path, monkeypatch):
    back_up(tmp_path / "out.tar", NOW)
    home(tmp_path / "new", monkeypatch)
    cautions = brought(tmp_path / "out.tar").cautions
    assert "files that 'first' names stood in /gone/files: --beside FOLDER says where they are" in cautions
    assert queued().runs["first"].submission.beside == ""


def test_revoked_members_are_revoked_before_anything_is_in_its_place(old, tmp_path, monkeypatch):
    back_up(tmp_path / "out.tar", NOW)
    new = home(tmp_path / "new", monkeypatch)

    def ask(description, listed):
        assert description.created == NOW
        assert list(listed["default"]) == ["pi-01", "pi-02", "pi-03"]
        assert not (new / "fleets").exists()
        return named("pi-03, default/pi-01", listed)

    assert brought(tmp_path / "out.tar", ask).revoked == (("default", "pi-03"), ("default", "pi-01"))
    fleet = FleetAdministration("default")
    assert list(fleet.members.active()) == ["pi-02"]
    assert "pi-03" not in (fleet.folder.broker / "acl").read_text()
    assert len(fleet.members.revoked_serials(LATER)) == 2


def test_the_audit_log_goes_on_and_tells_of_the_restore(old, tmp_path, monkeypatch):
    back_up(tmp_path / "out.tar", NOW)
    home(tmp_path / "new", monkeypatch)
    brought(tmp_path / "out.tar", lambda _, listed: named("pi-02", listed))
    book = AuditLog.opened(places.folder())
    assert verify(book.disk, book.signer.key) == ""
    assert [entry.what for entry in book.entries()] == ["run.submit", "restore"]
    assert [*book.entries()][-1].about.endswith("revoked again: default/pi-02")


def test_an_audit_log_that_was_changed_before_the_copy_is_reported(old, tmp_path, monkeypatch):
    book = AuditLog.opened(places.folder())
    book.write(Deed("ann", "run.cancel"), NOW.timestamp())
    log = places.folder() / "audit.log"
    log.write_bytes(log.read_bytes().replace(b"run.submit", b"run.resume"))
    back_up(tmp_path / "out.tar", NOW)
    home(tmp_path / "new", monkeypatch)
    assert (
        "the audit log in the copy is not whole: line 1 is not what its key signed"
        in brought(tmp_path / "out.tar").cautions
    )


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "name the members that were revoked after the copy"),
        ("pi-9", "'pi-9' is no member in the copy"),
        ("a/pi-2", "'a/pi-2' is no member"),
        ("pi-1", "is in the fleets a, b: say a/pi-1"),
    ],
)
def test_an_answer_that_names_no_member_is_refused(text, error):
    member = members.Member(key="ed25519:" + "A" * 43, added=NOW)
    with pytest.raises(ConfigError, match=error):
        named(text, {"a": {"pi-1": member}, "b": {"pi-1": member, "pi-2": member}})


def test_none_is_an_answer():
    assert named("none", {"a": {}}) == ()


# ---- nothing is written over -----------------------------------------------------------------------------------------


def test_a_fleet_that_is_there_is_moved_aside_only_when_a_person_says_so(old, tmp_path):
    back_up(tmp_path / "out.tar", NOW)
    FleetAdministration("default").add("pi-04", NOW)
    with pytest.raises(ConfigError, match=r"there is a fleet 'default' here .*--replace moves it aside"):
        brought(tmp_path / "out.tar")
    assert "pi-04" in FleetAdministration("default").members.active()
    done = brought(tmp_path / "out.tar", to=Destination(replace=True))
    assert "pi-04" not in FleetAdministration("default").members.active()
    assert done.aside is not None
    assert "pi-04" in (done.aside / "fleets" / "default" / "members.json").read_text()
    assert (done.aside / "server" / "runs" / "first" / "big.bin").exists()


def test_an_audit_log_alone_is_no_server_and_is_kept_aside(old, tmp_path, monkeypatch):
    back_up(tmp_path / "out.tar", NOW)
    home(tmp_path / "new", monkeypatch)
    AuditLog.opened(places.folder()).write(Deed("ann", "restore", outcome="refused"), NOW.timestamp())
    done = brought(tmp_path / "out.tar")
    assert done.aside is not None
    assert b"refused" in (done.aside / "server" / "audit.log").read_bytes()
    assert [entry.what for entry in AuditLog.opened(places.folder()).entries()] == ["run.submit", "restore"]


def test_a_server_or_a_broker_that_runs_keeps_its_files(old, tmp_path):
    back_up(tmp_path / "out.tar", NOW)
    with own(old / "fleets" / "default" / "broker"), pytest.raises(ConfigError, match="the broker of fleet 'default'"):
        brought(tmp_path / "out.tar", to=Destination(replace=True))
    with own(places.folder()), pytest.raises(ConfigError, match="a server of this operator runs here"):
        brought(tmp_path / "out.tar", to=Destination(replace=True))


def test_a_run_that_is_there_is_not_written_over(old, tmp_path, monkeypatch):
    back_up(tmp_path / "out.tar", NOW, runs=[tmp_path / "elsewhere"])
    new = home(tmp_path / "new", monkeypatch)
    with pytest.raises(ConfigError, match="second: is there already; --runs FOLDER"):
        brought(tmp_path / "out.tar", to=Destination(runs=tmp_path / "elsewhere"))
    assert not (new / "fleets").exists()


def test_a_back_up_is_never_written_over(old, tmp_path):
    back_up(tmp_path / "out.tar", NOW)
    with pytest.raises(ConfigError, match="is there already; name another file"):
        back_up(tmp_path / "out.tar", NOW)


def test_a_machine_without_anything_has_nothing_to_copy(tmp_path, monkeypatch):
    home(tmp_path / "empty", monkeypatch)
    with pytest.raises(ConfigError, match="there is nothing to copy"):
        back_up(tmp_path / "out.tar", NOW)
    with pytest.raises(ConfigError, match="no folder of a run"):
        back_up(tmp_path / "out.tar", NOW, runs=[tmp_path])


# ---- a file that cannot be believed ----------------------------------------------------------------------------------


def rewritten(path, change):
    """The same back-up after `change` has had its files, with a list that agrees with them."""
    with tarfile.open(path) as tar:
        files = {info.name: (info, tar.extractfile(info).read()) for info in tar}
    files = change(files)
    table = {
        name: {"size": len(data), "sha256": sha256(data).hexdigest()}
        for name, (_, data) in files.items()
        if name not in (DESCRIPTION, MANIFEST)
    }
    data = json.dumps({"files": table}).encode()
    out = path.with_name("changed.tar")
    with tarfile.open(out, "w") as tar:
        for name, (info, content) in {**files, MANIFEST: (tarfile.TarInfo(MANIFEST), data)}.items():
            info.name, info.size = name, len(content)
            tar.addfile(info, BytesIO(content))
    return out


@pytest.mark.parametrize(
    "name",
    [
        "../evil",
        "/etc/evil",
        "server/../../evil",
        "server/./evil",
        "server//evil",
        "server/",
        "elsewhere/evil",
        "server\\evil",
        "server/a\nb",
        "server/" + "x" * 256,
        "fleets",
        "",
    ],
)
def test_a_name_that_leads_elsewhere_is_refused(old, tmp_path, monkeypatch, name):
    assert not is_name(name)
    back_up(tmp_path / "out.tar", NOW)
    out = rewritten(tmp_path / "out.tar", lambda files: {**files, name or "/": (tarfile.TarInfo(), b"evil")})
    new = home(tmp_path / "new", monkeypatch)
    with pytest.raises(StoreError, match="in it is no "):
        brought(out)
    assert left(new) == []
    assert not [*tmp_path.rglob("evil")]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_what_is_no_plain_file_is_refused(old, tmp_path, monkeypatch, kind):
    back_up(tmp_path / "out.tar", NOW)
    link = tarfile.TarInfo("server/link")
    link.type, link.linkname = kind, "/etc/passwd"
    out = rewritten(tmp_path / "out.tar", lambda files: {**files, "server/link": (link, b"")})
    new = home(tmp_path / "new", monkeypatch)
    with pytest.raises(StoreError, match="'server/link' in it is no plain file"):
        brought(out)
    assert left(new) == []


def test_a_size_that_the_file_cannot_have_is_refused(old, tmp_path, monkeypatch):
    out = tmp_path / "out.tar"
    back_up(out, NOW)
    info = tarfile.TarInfo("server/huge")
    info.size = 1 << 50
    raw = out.read_bytes()
    out.write_bytes(raw[: raw.index(b"fleets/")] + info.tobuf() + bytes(1024))
    home(tmp_path / "new", monkeypatch)
    with pytest.raises(StoreError, match="'server/huge' in it is larger than the whole back-up"):
        brought(out)


@pytest.mark.parametrize("share", [0.001, 0.3, 0.6, 0.9])
def test_a_back_up_that_was_cut_off_is_refused(old, tmp_path, monkeypatch, share):
    out = tmp_path / "out.tar"
    back_up(out, NOW)
    raw = out.read_bytes()
    out.write_bytes(raw[: int(len(raw) * share)])
    new = home(tmp_path / "new", monkeypatch)
    with pytest.raises(StoreError, match=r"out\.tar: .*; take another copy|not a back-up"):
        brought(out)
    assert left(new) == []


def test_a_file_whose_hash_does_not_agree_is_named(old, tmp_path, monkeypatch):
    out = tmp_path / "out.tar"
    back_up(out, NOW)
    raw = out.read_bytes()
    out.write_bytes(raw.replace(b"ed25519:", b"ed25518:", 1))
    new = home(tmp_path / "new", monkeypatch)
    with pytest.raises(StoreError, match="in it is not what was copied"):
        brought(out)
    assert left(new) == []


def test_a_later_form_says_which_version_can_read_it(old, tmp_path, monkeypatch):
    back_up(tmp_path / "out.tar", NOW)

    def later(files):
        about = {**json.loads(files[DESCRIPTION][1]), "version": 2, "software": "9.1"}
        return {**files, DESCRIPTION: (files[DESCRIPTION][0], json.dumps(about).encode())}

    out = rewritten(tmp_path / "out.tar", later)
    home(tmp_path / "new", monkeypatch)
    with pytest.raises(StoreError, match=r"written by edgefl 9\.1 in a form that this one does not know; install that"):
        brought(out)


def test_lists_in_lists_are_no_description(old, tmp_path, monkeypatch):
    back_up(tmp_path / "out.tar", NOW)
    nested = b"[" * 200_000
    out = rewritten(tmp_path / "out.tar", lambda files: {**files, DESCRIPTION: (files[DESCRIPTION][0], nested)})
    home(tmp_path / "new", monkeypatch)
    with pytest.raises(StoreError, match="its description cannot be read"):
        brought(out)


def test_another_file_is_no_back_up(tmp_path, monkeypatch):
    home(tmp_path / "new", monkeypatch)
    (tmp_path / "text").write_text("hello\n" * 500)
    with tarfile.open(tmp_path / "other.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("a"), BytesIO())
    with pytest.raises(StoreError, match="no whole back-up"):
        brought(tmp_path / "text")
    with pytest.raises(StoreError, match="not a back-up that edgefl has made"):
        brought(tmp_path / "other.tar")
    with pytest.raises(StoreError, match="cannot be read"):
        brought(tmp_path / "missing.tar")


def test_a_sealed_back_up_opens_with_its_key_only(old, tmp_path, monkeypatch):
    public = sealed_stream.read_public(sealed_stream.make_key(tmp_path / "key"))
    sealed_stream.make_key(tmp_path / "other")
    back_up(tmp_path / "out.tar", NOW, reader=public)
    assert b"PRIVATE KEY" not in (tmp_path / "out.tar").read_bytes()
    home(tmp_path / "new", monkeypatch)
    with pytest.raises(ConfigError, match="--key FILE names the secret key"):
        brought(tmp_path / "out.tar")
    with pytest.raises(ConfigError, match="sealed for"):
        brought(tmp_path / "out.tar", key=sealed_stream.read_secret(tmp_path / "other"))
    brought(tmp_path / "out.tar", key=sealed_stream.read_secret(tmp_path / "key"))
    assert "pi-01" in FleetAdministration("default").members.active()


def left(state: Path) -> list[Path]:
    """What a restore that was refused has left behind."""
    return [path for path in state.rglob("*") if path.is_file() and path.name != "lock"]


# ---- while everything goes on ----------------------------------------------------------------------------------------


def test_a_copy_is_of_one_moment_while_rows_rotate_and_lines_are_added(old, tmp_path, monkeypatch):
    """A line and a row are written in turn: in no copy is one of them ahead by more than that."""
    monkeypatch.setattr(rows, "SMALL", 100)
    monkeypatch.setattr(rows, "GROWN", 2)
    book, store, over = AuditLog.opened(places.folder()), RowStore(FolderDisk(places.folder())), threading.Event()
    fleet = FleetAdministration("default")

    def work():
        number = 0
        while not over.is_set():
            number += 1
            book.write(Deed("", "count", about=str(number)), NOW.timestamp())
            store.write({"count": {"n": {"n": number, "filler": "x" * 2000}}})
            fleet.label(["pi-01"], {"n": f"{number}"}, NOW)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        copies = [tmp_path / f"{number}.tar" for number in range(12)]
        for copy in copies:
            back_up(copy, NOW)
    finally:
        over.set()
        thread.join()
    assert store._number > 1
    seen = []
    for copy in copies:
        home(tmp_path / f"new-{copy.stem}", monkeypatch)
        assert not [line for line in brought(copy).cautions if "audit" in line]
        counted = RowStore(FolderDisk(places.folder())).tables.get("count", {}).get("n", {"n": 0})["n"]
        lines = [int(entry.about) for entry in AuditLog.opened(places.folder()).entries() if entry.what == "count"]
        assert len(lines) - counted in (0, 1)
        assert int(FleetAdministration("default").members.members["pi-01"].labels.get("n", 0)) <= counted + 1
        seen.append(counted)
    assert seen == sorted(seen)


class Busy:
    """A run at work, each round of which begins a segment of its journal and takes an old one away."""

    rules = Rules(rounds=1_000_000, seed=1, cohort=1, quorum=1, deadline=5.0)

    def __init__(self):
        self.rounds = Rounds(self.rules)
        self.book = Journal(FolderDisk(places.folder() / places.RUNS / "busy"))
        self.play(DeviceJoined("a", 0))

    def play(self, event):
        after, _ = step(self.rounds, event)
        closes = after.phase == "merging" and self.rounds.phase != "merging"
        answer = AnswerFrame(event.round, "a", bytes(32), bytes(3000)) if isinstance(event, DeviceAnswered) else None
        self.book.write((event,), after, answer, 1 if closes else None)
        self.rounds = after

    def a_round(self):
        number = self.rounds.round
        self.play(DeviceAnswered("a", number, 0))
        self.play(RoundMerged(number, 0))


def restored_round():
    state = Journal(FolderDisk(places.folder() / places.RUNS / "busy")).rounds(Busy.rules)
    assert state is not None
    return state.round


def test_a_copy_of_a_run_at_work_is_a_run_of_one_moment(old, tmp_path, monkeypatch):
    monkeypatch.setattr(segments, "ROUNDS", 1)
    over, busy = threading.Event(), Busy()

    def work():
        while not over.is_set():
            busy.a_round()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        copies = [tmp_path / f"{number}.tar" for number in range(8)]
        for copy in copies:
            back_up(copy, NOW)
    finally:
        over.set()
        thread.join()
    assert busy.rounds.round > KEPT
    reached = []
    for copy in copies:
        home(tmp_path / f"new-{copy.stem}", monkeypatch)
        brought(copy)
        reached.append(restored_round())
    assert reached == sorted(reached)


def between(monkeypatch, sign, act, times=3):
    """Do something before a file with this in its name is opened: in the first attempts to copy its folder."""
    plain, left = backup._opened, [times]

    def opened(path, name, files):
        if sign in name and left[0]:
            left[0] -= 1
            act()
        return plain(path, name, files)

    monkeypatch.setattr(backup, "_opened", opened)


@pytest.mark.parametrize("sign", ["busy/journal-", "busy/journal.log"])
def test_rounds_that_end_between_two_files_of_a_run_make_no_mixture(old, tmp_path, monkeypatch, sign):
    monkeypatch.setattr(segments, "ROUNDS", 1)
    busy = Busy()
    for _ in range(5):
        busy.a_round()
    between(monkeypatch, sign, lambda: [busy.a_round() for _ in range(5)])
    back_up(tmp_path / "out.tar", NOW)
    home(tmp_path / "new", monkeypatch)
    brought(tmp_path / "out.tar")
    assert restored_round() == busy.rounds.round == 21


def test_rows_that_are_begun_anew_while_they_are_opened_are_copied_all_the_same(old, tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "SMALL", 100)
    monkeypatch.setattr(rows, "GROWN", 0)
    store, numbers = RowStore(FolderDisk(places.folder())), iter(range(1, 99))
    between(monkeypatch, "server/state-", lambda: store.write({"count": {"n": {"n": next(numbers)}}}))
    back_up(tmp_path / "out.tar", NOW)
    home(tmp_path / "new", monkeypatch)
    brought(tmp_path / "out.tar")
    assert RowStore(FolderDisk(places.folder())).tables["count"]["n"] == {"n": 3}


def test_a_folder_that_never_rests_is_told_of(old, tmp_path, monkeypatch):
    monkeypatch.setattr(backup, "PAUSE", 0.0)
    monkeypatch.setattr(rows, "SMALL", 100)
    monkeypatch.setattr(rows, "GROWN", 0)
    store = RowStore(FolderDisk(places.folder()))
    between(monkeypatch, "server/state-", lambda: store.write({"count": {"n": {"n": 1}}}), times=10**6)
    with pytest.raises(StoreError, match="its files change all the time"):
        back_up(tmp_path / "out.tar", NOW)
    assert not (tmp_path / "out.tar").exists()
    assert not (tmp_path / ".out.tar.new").exists()


def test_a_full_disk_leaves_no_half_of_a_back_up(old, tmp_path, monkeypatch):
    """The limit of a file's size stands for the end of the disk: the kernel refuses the write."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(StoreError, match=r"out\.tar: cannot be written \(File too large\); free some space"):
            back_up(tmp_path / "out.tar", NOW)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert not [*tmp_path.glob("*out.tar*")]
