"""deploy/locks: what a machine installs is named, to the hash, and agrees with what the project asks for."""

import importlib.metadata
import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
LOCKS = ROOT / "deploy" / "locks"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ASKED = {
    "device": PROJECT["project"]["dependencies"],
    "coordinator": PROJECT["project"]["dependencies"] + PROJECT["project"]["optional-dependencies"]["coordinator"],
    "digits": ["scikit-learn"],
    "build": PROJECT["build-system"]["requires"],
}
OF_ITS_OWN = {"torch"}  # torch-cuda.txt, or PyTorch's own index for machines without a GPU
ON_DEVICES = {"onnxruntime": "1.23.2"}  # docs/parts.md, "What a device needs"
PYTHONS = {"device": range(10, 14), "coordinator": range(11, 14), "digits": range(11, 14), "build": range(10, 14)}
MACHINES = [
    pytest.param(lock, {**default_environment(), "python_version": python, "platform_machine": machine, "extra": ""})
    for lock, pythons in PYTHONS.items()
    for python in (f"3.{minor}" for minor in pythons)
    for machine in ("x86_64", "aarch64")
]


def locked(lock):
    """Every requirement of a lock, with its hashes."""
    text = re.sub(r"#.*", "", (LOCKS / f"{lock}.txt").read_text(encoding="utf-8")).replace("\\\n", " ")
    for line in filter(None, map(str.strip, text.splitlines())):
        requirement, *hashes = re.split(r"\s--hash=", line)
        yield Requirement(requirement), [one.strip() for one in hashes]


def pins(requirements, machine):
    """The one version of each that this machine installs."""
    here = [r for r in requirements if r.marker is None or r.marker.evaluate(machine)]
    return {canonicalize_name(r.name): str(r.specifier).removeprefix("==") for r in here}


def constraints():
    lines = re.sub(r"#.*", "", (ROOT / "constraints.txt").read_text(encoding="utf-8")).splitlines()
    return [Requirement(line) for line in lines if line.strip()]


@pytest.mark.parametrize("lock", [*ASKED, "torch-cuda"])
def test_everything_has_one_version_and_its_hashes(lock):
    for requirement, hashes in locked(lock):
        assert re.fullmatch(r"==[^*,]+", str(requirement.specifier))
        assert hashes
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", one) for one in hashes)
        assert all(a < b for a, b in pairwise(hashes))


@pytest.mark.parametrize(("lock", "machine"), MACHINES)
def test_what_the_project_asks_for_is_there_in_a_version_it_allows(lock, machine):
    versions = pins([requirement for requirement, _ in locked(lock)], machine)
    for requirement in map(Requirement, ASKED[lock]):
        name = canonicalize_name(requirement.name)
        if name not in OF_ITS_OWN and (requirement.marker is None or requirement.marker.evaluate(machine)):
            assert requirement.specifier.contains(versions[name])


@pytest.mark.parametrize(("lock", "machine"), MACHINES)
def test_versions_are_those_of_the_constraints(lock, machine):
    versions = pins([requirement for requirement, _ in locked(lock)], machine)
    tried = pins(constraints(), machine)
    assert versions == {name: tried[name] for name in versions} | (ON_DEVICES if lock == "device" else {})


@pytest.mark.parametrize("lock", ["device", "coordinator", "digits"])
def test_nothing_that_a_package_needs_is_left_out(lock):
    """As far as this machine has the same versions installed."""
    here = {**default_environment(), "extra": ""}
    versions = pins([requirement for requirement, _ in locked(lock)], here)
    known = 0
    for name, version in versions.items():
        try:
            package = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if package.version == version:
            known += 1
            needs = [Requirement(line) for line in package.requires or ()]
            needs = [r for r in needs if r.marker is None or r.marker.evaluate(here)]
            assert {canonicalize_name(r.name) for r in needs} <= versions.keys() | OF_ITS_OWN, name
    assert known > len(versions) / 2


@pytest.mark.skipif(not os.environ.get("EDGEFL_INDEX"), reason="asks the package index; EDGEFL_INDEX=1 runs it")
@pytest.mark.timeout(1200)
def test_a_device_can_be_installed_from_hashes_alone(tmp_path):
    """With nothing that was not locked: pip refuses any file of another hash, and any package without one."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", "--no-cache-dir", "--only-binary", ":all:"]
    subprocess.run([*install, "--require-hashes", "-r", LOCKS / "device.txt"], check=True)
    subprocess.run([python, "-m", "pip", "check"], check=True)
    code = "import device_agent.start, edgefl.learn.models.onnx_backend, onnxruntime; print(onnxruntime.__version__)"
    here = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run([python, "-c", code], check=True, cwd=tmp_path, env=here, capture_output=True, text=True)
    assert ran.stdout.strip() == ON_DEVICES["onnxruntime"]


@pytest.mark.skipif(not os.environ.get("EDGEFL_INDEX"), reason="asks the package index; EDGEFL_INDEX=1 runs it")
def test_a_file_of_another_hash_is_refused(tmp_path):
    wrong = tmp_path / "wrong.txt"
    wrong.write_text(f"mdurl==0.1.2 --hash=sha256:{'0' * 64}\n", encoding="utf-8")
    install = [sys.executable, "-m", "pip", "install", "--no-cache-dir", "--target", tmp_path / "unused"]
    tried = subprocess.run([*install, "--require-hashes", "-r", wrong], check=False, capture_output=True, text=True)
    assert tried.returncode != 0
    assert "DO NOT MATCH THE HASHES" in tried.stderr
