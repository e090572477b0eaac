"""A disk in memory behaves as a folder does; when its power fails, what was promised is there."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefl.base.errors import StoreError
from edgefl.system import faults
from edgefl.system.disk import Disk, FolderDisk
from edgefl.system.memory_disk import MemoryDisk
from tools.failing_disk import SECTOR, FailingDisk, PowerCut

NAMES = st.sampled_from(["a", "b", "c.log"])
DATA = st.binary(max_size=64) | st.binary(min_size=1, max_size=3).map(lambda data: data * SECTOR)
CALLS = st.one_of(
    st.tuples(st.just("write"), NAMES, DATA),
    st.tuples(st.just("create"), NAMES, DATA),
    st.tuples(st.just("append"), NAMES, DATA, DATA),
    st.tuples(st.just("overwrite"), NAMES, DATA, DATA),
    st.tuples(st.just("patch"), NAMES, st.binary(max_size=8)),
    st.tuples(st.just("truncate"), NAMES, st.integers(0, 100)),
    st.tuples(st.just("sync"), NAMES),
    st.tuples(st.just("rename"), NAMES, NAMES),
    st.tuples(st.just("remove"), NAMES),
)


def outcome(disk: Disk, call: tuple[Any, ...]) -> object:
    """What a call gives back; of a refusal, the words that do not name the place."""
    try:
        return getattr(disk, call[0])(*call[1:])
    except StoreError as error:
        return str(error).removeprefix(disk.where(call[1]))


def contents(disk: Disk) -> dict[str, bytes | None]:
    return {name: disk.read(name) for name in disk.names()}


@pytest.mark.parametrize("kind", [MemoryDisk, FailingDisk])
@given(calls=st.lists(CALLS, max_size=30))
def test_in_memory_and_in_a_folder_the_same_calls_leave_the_same_files(
    kind: type[MemoryDisk | FailingDisk], calls: list[tuple[Any, ...]]
) -> None:
    with TemporaryDirectory() as place:
        folder, memory = FolderDisk(Path(place) / "deep" / "down"), kind()
        folder.write("a", b"")  # so that the folder is there
        memory.write("a", b"")
        for call in calls:
            if call[0] == "truncate" and call[2] > (memory.size(call[1]) or 0):
                continue  # nobody makes a file longer this way
            assert outcome(folder, call) == outcome(memory, call)
            assert contents(folder) == contents(memory)
            assert [folder.size(name) for name in "ab"] == [memory.size(name) for name in "ab"]
            assert folder.read("a", 2, 5) == memory.read("a", 2, 5)


class Promises:
    """What may be found after a power cut: for each name the contents it may have; None: it may not be there."""

    def __init__(self) -> None:
        self.allowed: dict[str, list[bytes | None]] = {}

    def before(self, disk: FailingDisk, call: tuple[Any, ...]) -> None:
        """The call may have been interrupted anywhere."""
        what, name, *rest = call
        now = disk.read(name)
        possible = self.allowed.setdefault(name, [None])
        match what:
            case "write" | "create":
                possible.append(rest[0])
            case "append":
                possible += [(now or b"") + rest[0], (now or b"") + rest[0] + rest[1]]
            case "overwrite":
                for new in (rest[0], rest[0] + rest[1]):
                    possible.append(new + (now or b"")[len(new) :])
                possible.append(rest[0] + rest[1])
            case "patch":
                possible.append(rest[0] + (now or b"")[len(rest[0]) :])
            case "truncate":
                possible.append((now or b"")[: rest[0]])
            case "rename":
                self.allowed.setdefault(rest[0], [None]).append(now)
                self.allowed[rest[0]] += possible
                possible.append(None)
            case "remove":
                possible.append(None)

    def after(self, disk: FailingDisk, call: tuple[Any, ...]) -> None:
        """It returned, so what it promises holds."""
        what, name, *_ = call
        if what in {"write", "append", "overwrite", "truncate", "sync"}:
            self.allowed[name] = [disk.read(name)]
        if what == "write":  # it has synced all names, if not what is in the files
            for other, possible in self.allowed.items():
                if other not in disk.names():
                    self.allowed[other] = [None]
                elif None in possible:
                    self.allowed[other] = [content for content in possible if content is not None]

    def check(self, disk: FailingDisk) -> None:
        for name, possible in self.allowed.items():
            left = disk.read(name)
            assert left in possible or (left is not None and _mixed(left, [content or b"" for content in possible]))


def _mixed(left: bytes, possible: list[bytes]) -> bool:
    """Whether every sector is one of those that were there, or zeros where there were none."""
    sizes = [len(content) for content in possible]
    if len(sizes) == 1 or not min(sizes) <= len(left) <= max(sizes):
        return False
    for at in range(0, len(left), SECTOR):
        sector = left[at : at + SECTOR]
        known = [content[at : at + SECTOR].ljust(SECTOR, b"\0")[: len(sector)] for content in [*possible, b""]]
        if sector not in known:
            return False
    return True


SAFE_CALLS = CALLS.filter(lambda call: call[0] not in {"create", "truncate"})


@given(st.lists(SAFE_CALLS, min_size=1, max_size=12), st.integers(0, 60), st.integers(0, 2**32))
def test_after_a_power_cut_only_what_could_be_is_there(calls: list[tuple[Any, ...]], steps: int, seed: int) -> None:
    disk, promises = FailingDisk(), Promises()
    disk.power = steps
    try:
        for call in calls:
            if call[0] == "rename" and call[1] == call[2]:
                continue
            promises.before(disk, call)
            if not isinstance(outcome(disk, call), str):
                promises.after(disk, call)
    except PowerCut:
        pass
    disk.crash(Random(seed))
    promises.check(disk)


@pytest.mark.parametrize("way", ["write", "append", "overwrite"])
def test_what_returned_is_there_and_what_was_interrupted_is_old_or_new_or_torn(way: str) -> None:
    old, new = b"o" * 3 * SECTOR, b"n" * 3 * SECTOR
    seen = set()
    for steps in range(8):
        for seed in range(40):
            disk = FailingDisk()
            disk.write("file", old)
            disk.power = steps
            returned = _survives(lambda disk=disk: getattr(disk, way)("file", new))
            disk.crash(Random(seed))
            left = disk.read("file")
            whole = old + new if way == "append" else new
            if returned:
                assert left == whole
            elif way == "write":
                assert left in (old, new)
            elif way == "append":
                assert left is not None
                assert left.startswith(old)
            seen.add("new" if left == whole else "old" if left == old else "torn")
    assert seen == ({"old", "new"} if way == "write" else {"old", "new", "torn"})


def _survives(action: Callable[[], object]) -> bool:
    try:
        action()
    except PowerCut:
        return False
    return True


def test_a_disk_without_power_does_nothing_until_it_is_back() -> None:
    disk = FailingDisk()
    disk.write("file", b"old")
    disk.power = 0
    for call in (lambda: disk.write("file", b"new"), lambda: disk.append("file", b"new"), lambda: disk.read("file")):
        with pytest.raises(PowerCut):
            call()
    disk.crash(Random(1))
    assert disk.read("file") == b"old"


def test_a_name_that_was_not_synced_may_come_back() -> None:
    left = set()
    for seed in range(20):
        disk = FailingDisk()
        disk.write("a", b"1")
        disk.rename("a", "b")
        disk.crash(Random(seed))
        left.add(tuple(disk.names()))
    assert left == {("a",), ("b",)}


def test_a_full_disk_refuses_as_a_real_one_does_and_keeps_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, folder = FailingDisk(str(tmp_path)), FolderDisk(tmp_path)
    for disk in (memory, folder):
        disk.write("file", b"old")
    memory.capacity = memory.used
    monkeypatch.setattr(faults, "_kind", "full")
    monkeypatch.setattr(faults, "_number", "1")
    for way in ("write", "append", "overwrite"):
        monkeypatch.setattr(faults, "_writes", 0)
        messages = []
        for disk in (memory, folder):
            with pytest.raises(StoreError, match="No space left on device") as refused:
                getattr(disk, way)("file", b"longer")
            messages.append(str(refused.value))
            assert disk.read("file") == b"old"
        assert messages[0] == messages[1]


def test_a_disk_in_memory_counts_what_it_writes() -> None:
    disk = FailingDisk()
    disk.write("a", b"123")
    disk.append("a", b"45", b"6")
    assert (disk.writes, disk.written, disk.used) == (2, 6, 6)


def test_files_of_a_folder_are_for_their_owner_alone(tmp_path: Path) -> None:
    disk = FolderDisk(tmp_path / "new")
    disk.write("written", b"x")
    disk.append("appended", b"x")
    disk.overwrite("overwritten", b"x")
    disk.create("created", b"x")
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "new").iterdir()} == {0o600}
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    assert disk.names() == ["appended", "created", "overwritten", "written"]


def test_of_two_who_create_a_file_the_first_ones_stays(tmp_path: Path) -> None:
    disk = FolderDisk(tmp_path)
    assert disk.create("key", b"first")
    assert not disk.create("key", b"second")
    assert disk.read("key") == b"first"
    assert disk.names("*.key*") == []
    assert [path.name for path in tmp_path.iterdir()] == ["key"]
