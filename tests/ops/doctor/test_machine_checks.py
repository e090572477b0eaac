"""What the doctor says about machines, most of which we do not have."""

import os
import subprocess
from datetime import datetime, timedelta, timezone

import pytest

from edgefl.ops.doctor.folders import folder, key_file, room
from edgefl.ops.doctor.machine import built, clock, libc, machine, memory, processor, python, word_size

DAY = timedelta(days=1)
PI4 = "processor\t: 0\nFeatures\t: fp asimd evtstrm crc32 cpuid\n"
PI5 = "processor\t: 0\nFeatures\t: fp asimd evtstrm aes crc32 atomics fphp\n"


def test_this_machine_is_fine_or_told_what_to_do():
    findings = list(machine())
    assert [f.what for f in findings] == ["64-bit", "glibc", "Python", "clock", "memory", "processor"]
    assert all(f.remedy for f in findings if f.level != "ok")


def test_a_32_bit_python_on_a_64_bit_kernel_is_wrong():
    finding = word_size("aarch64", 32)
    assert finding.level == "wrong"
    assert "64-bit system" in finding.remedy
    assert word_size("aarch64", 64).level == "ok"


@pytest.mark.parametrize(
    ("name", "version", "level"),
    [
        ("glibc", "2.28", "ok"),
        ("glibc", "2.36", "ok"),
        ("glibc", "2.27", "wrong"),
        ("glibc", "3.0", "ok"),
        ("musl", "1.2", "wrong"),
        ("", "", "wrong"),
    ],
)
def test_wheels_want_a_glibc_that_is_not_too_old(name, version, level):
    assert libc(name, version).level == level


@pytest.mark.parametrize(
    ("version", "level"), [((3, 9), "wrong"), ((3, 10), "ok"), ((3, 13), "ok"), ((3, 14), "wrong")]
)
def test_python_is_one_of_four(version, level):
    assert python(version).level == level


def test_a_clock_from_before_the_package_was_made_is_wrong():
    build_time = built()
    finding = clock(datetime(1970, 1, 1, tzinfo=timezone.utc), build_time)
    assert finding.level == "wrong"
    assert "1970-01-01" in finding.text
    assert "TLS needs the right date" in finding.remedy
    assert clock(build_time - DAY, build_time).level == "wrong"
    assert clock(build_time + DAY, build_time).level == "ok"


def test_the_time_zone_does_not_matter():
    tokyo = timezone(timedelta(hours=9))
    build_time = built()
    assert clock(build_time.astimezone(tokyo), build_time).level == "ok"


def test_little_memory_is_told_before_it_runs_out():
    levels = [memory(mb << 20, 1 << 30).level for mb in (900, 200, 90)]
    assert levels == ["ok", "warning", "wrong"]


def test_a_pi_4_is_told_which_versions_run_on_it():
    finding = processor("aarch64", PI4)
    assert finding.level == "warning"
    assert "atomics" in finding.text
    assert "onnxruntime 1.23.2" in finding.remedy
    assert "torch 2.9.1" in finding.remedy
    assert processor("aarch64", PI5).level == processor("aarch64", "").level == processor("x86_64", "").level == "ok"


# ---- folders -------------------------------------------------------------------------------------------------------


def test_a_folder_that_can_be_written_is_left_as_it_was(tmp_path):
    findings = list(folder(tmp_path / "state" / "deep", "agent.folder"))
    assert [f.what for f in findings] == ["folder", "disk"]
    assert findings[0].level == "ok"
    assert "will be made" in findings[0].text
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    findings = list(folder(tmp_path / "file", "run.folder"))
    assert [f.level for f in findings] == ["wrong"]
    assert "Not a directory" in findings[0].text
    assert "run.folder" in findings[0].remedy


def test_a_full_disk_is_told_as_one(tmp_path):
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(tmp_path)]
    if os.geteuid() or subprocess.run(mount, check=False).returncode:
        pytest.skip("needs root and mount for a small file system")
    try:
        with pytest.raises(OSError, match="No space"):
            (tmp_path / "ballast").write_bytes(bytes(1 << 20))
        (finding,) = folder(tmp_path, "agent.folder")
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
    assert (finding.level, finding.text) == ("wrong", f"the disk is full: {tmp_path} cannot be written")
    assert finding.remedy == "free some space, or choose another agent.folder"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_of_somebody_else_is_named(tmp_path):
    tmp_path.chmod(0o500)
    assert [f.level for f in folder(tmp_path, "run.folder")] == ["wrong"]


def test_a_full_disk_is_told_before_the_run_pauses(tmp_path):
    levels = [room(tmp_path, mb << 20).level for mb in (900, 200, 9)]
    assert levels == ["ok", "warning", "wrong"]


@pytest.mark.parametrize(("mode", "level"), [(0o600, "ok"), (0o400, "ok"), (0o644, "wrong"), (0o640, "wrong")])
def test_a_private_key_is_for_nobody_else(tmp_path, mode, level):
    key = tmp_path / "pi.key"
    key.write_text("secret")
    key.chmod(mode)
    finding = key_file(key, "agent.tls.key")
    assert finding.level == level
    assert "secret" not in finding.text + finding.remedy
    assert level == "ok" or finding.remedy == f"chmod 600 {key}"


def test_a_key_that_is_not_there_is_named(tmp_path):
    finding = key_file(tmp_path / "none.key", "agent.tls.key")
    assert (finding.level, "agent.tls.key" in finding.text) == ("wrong", True)
