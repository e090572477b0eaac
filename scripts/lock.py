"""Write deploy/locks: every package that a machine installs, at one version, with the hashes that its files may have.

    python scripts/lock.py [device] [coordinator] [torch-cuda] [digits] [build]

Versions are those of constraints.txt; what it does not name gets the newest that fits. Hashes are those of the wheels
on the package index for Linux on x86_64 and aarch64 and the Pythons that we support; there are none of source archives,
so that pip neither compiles nor runs anything while it installs.
"""
# ruff: noqa: S310, T201 - a script: it prints, and reads from the package index

import html
import io
import os
import re
import sys
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from email.parser import HeaderParser
from functools import cache
from pathlib import Path
from urllib.request import Request, urlopen

from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ROOT / "deploy" / "locks"
INDEX = os.environ.get("EDGEFL_INDEX_URL", "https://pypi.org/simple")
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
MACHINES = ("x86_64", "aarch64")
GLIBC = 28  # 2.28, the oldest that we support
TORCH = ("torch",)
CUDA = ("cuda-", "nvidia-", "triton")  # what torch asks for on PyPI alone: its wheels for the CPU do not
# Where a device differs from a development machine: docs/parts.md says why.
PINNED_ON_DEVICES = {"onnxruntime": "1.23.2"}


@dataclass(frozen=True)
class Machine:
    """A kind of machine that we support."""

    python: str
    architecture: str

    def applies(self, requirement: Requirement, extra: str = "") -> bool:
        """Whether pip would look at this requirement there."""
        about = {
            "python_version": self.python,
            "python_full_version": f"{self.python}.0",
            "platform_machine": self.architecture,
            "platform_system": "Linux",
            "sys_platform": "linux",
            "os_name": "posix",
            "implementation_name": "cpython",
            "platform_python_implementation": "CPython",
            "extra": extra,
        }
        return requirement.marker is None or requirement.marker.evaluate(about)

    @cache  # noqa: B019 - there are eight of them
    def tags(self) -> frozenset[Tag]:
        """The wheels that it takes."""
        old = [f"manylinux{old}_{self.architecture}" for old in ("1", "2010", "2014")]
        platforms = [f"manylinux_2_{minor}_{self.architecture}" for minor in range(GLIBC, 4, -1)] + old
        major, minor = (int(part) for part in self.python.split("."))
        exact = cpython_tags((major, minor), platforms=platforms)
        return frozenset(exact) | frozenset(compatible_tags((major, minor), f"cp{major}{minor}", platforms))


def machines(lock: str) -> tuple[Machine, ...]:
    """Those that a lock is for: a coordinator's quadprog has no wheel for Python 3.10 on aarch64."""
    pythons = PYTHONS if lock in ("device", "build") else PYTHONS[1:]
    return tuple(Machine(python, architecture) for python in pythons for architecture in MACHINES)


@dataclass(frozen=True)
class Wheel:
    """A file on the index."""

    version: Version
    tags: frozenset[Tag]
    pythons: SpecifierSet
    url: str
    sha256: str

    def fits(self, machine: "Machine") -> bool:
        return bool(self.tags & machine.tags()) and self.pythons.contains(f"{machine.python}.99")


@cache
def wheels(name: str) -> tuple[Wheel, ...]:
    """Everything that the index has of a package, but not what was withdrawn."""
    with urlopen(f"{INDEX}/{name}/", timeout=60) as page:
        links = re.findall(r"<a ([^>]*)>([^<]*)</a>", page.read().decode())
    files = []
    for attributes, file in links:
        address = re.search(r'href="([^"#]+)#sha256=([0-9a-f]{64})"', html.unescape(attributes))
        if address is None or "data-yanked" in attributes:
            continue
        try:
            _, version, _, tags = parse_wheel_filename(file.strip())
            pythons = re.search(r'data-requires-python="([^"]*)"', attributes)
            needed = SpecifierSet(html.unescape(pythons[1]) if pythons else "")
        except (InvalidWheelFilename, InvalidSpecifier):  # a source archive, or older than today's rules
            continue
        files.append(Wheel(version, tags, needed, address[1], address[2]))
    return tuple(files)


class Remote(io.RawIOBase):
    """A file on the index, of which only what is looked at is fetched: torch has half a gigabyte."""

    def __init__(self, url: str) -> None:
        self.url, self.at = url, 0
        with urlopen(Request(url, method="HEAD"), timeout=60) as answer:
            self.size = int(answer.headers["content-length"])

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self.at = offset + (0, self.at, self.size)[whence]
        return self.at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        end = min(self.at + len(buffer), self.size)
        if end <= self.at:
            return 0
        with urlopen(Request(self.url, headers={"Range": f"bytes={self.at}-{end - 1}"}), timeout=60) as answer:
            data = answer.read()
        buffer[: len(data)] = data
        self.at += len(data)
        return len(data)


@cache
def needs(url: str) -> tuple[Requirement, ...]:
    """What the wheel at this address asks for."""
    with zipfile.ZipFile(io.BufferedReader(Remote(url), 1 << 16)) as wheel:
        about = next(name for name in wheel.namelist() if name.count("/") == 1 and name.endswith(".dist-info/METADATA"))
        headers = HeaderParser().parsestr(wheel.read(about).decode())
    return tuple(Requirement(line) for line in headers.get_all("Requires-Dist") or ())


@cache
def constraints() -> tuple[Requirement, ...]:
    lines = (line.partition("#")[0].strip() for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines())
    return tuple(Requirement(line) for line in lines if line)


def chosen(requirement: Requirement, machine: Machine, pins: dict[str, str]) -> Wheel:
    """The wheel that this machine installs for a requirement."""
    name = canonicalize_name(requirement.name)
    same_name = [pin for pin in constraints() if canonicalize_name(pin.name) == name]
    exact = [str(pin.specifier).removeprefix("==") for pin in same_name if machine.applies(pin)]
    version = pins.get(name) or next(iter(exact), None)
    if version and not requirement.specifier.contains(version, prereleases=True):
        sys.exit(f"{requirement} is asked for, but {name} is pinned to {version}")
    fitting = [
        wheel
        for wheel in wheels(name)
        if wheel.fits(machine)
        and (wheel.version == Version(version) if version else requirement.specifier.contains(wheel.version))
    ]
    if not fitting:
        sys.exit(f"{INDEX} has no wheel of {requirement} ({version or 'any version'}) for {machine}")
    return max(fitting, key=lambda wheel: wheel.version)


def closure(roots: Iterable[Requirement], machine: Machine, pins: dict[str, str], *, cuda: bool) -> dict[str, Version]:
    """Everything that comes with the roots on this machine."""
    versions: dict[str, Version] = {}
    waiting = [(root, "") for root in roots if machine.applies(root)]
    seen = set()
    while waiting:
        requirement, _ = item = waiting.pop()
        if str(item) in seen:
            continue
        seen.add(str(item))
        wheel = chosen(requirement, machine, pins)
        versions[canonicalize_name(requirement.name)] = wheel.version
        for extra in ("", *requirement.extras):
            waiting += [
                (need, extra)
                for need in needs(wheel.url)
                if machine.applies(need, extra) and (cuda or not need.name.startswith(CUDA))
            ]
    return versions


def project() -> dict[str, list[Requirement]]:
    """What pyproject.toml asks for: the base, its extras, and what builds it."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    extras = table["project"]["optional-dependencies"]
    lists = {"": table["project"]["dependencies"], "build": table["build-system"]["requires"], **extras}
    return {name: [Requirement(line) for line in lines] for name, lines in lists.items()}


def packages(lock: str, machine: Machine) -> dict[str, Version]:
    """What this lock holds for one kind of machine."""
    lists = project()
    if lock == "device":
        return closure(lists[""], machine, PINNED_ON_DEVICES, cuda=False)
    if lock == "digits":
        return closure([Requirement("scikit-learn")], machine, {}, cuda=False)
    if lock == "build":
        return closure(lists["build"], machine, {}, cuda=False)
    server = closure([*lists[""], *lists["coordinator"]], machine, {}, cuda=lock == "torch-cuda")
    with_torch = {name: version for name, version in server.items() if name in TORCH or name.startswith(CUDA)}
    if lock == "torch-cuda":
        return with_torch
    return {name: version for name, version in server.items() if name not in with_torch}


def marker(some: set[Machine], every: tuple[Machine, ...]) -> str:
    """What tells these machines from the others; nothing if it is all of them."""
    ways = [""]
    ways += [f'python_version {sign} "{python}"' for python in PYTHONS for sign in ("<", ">=")]
    ways += [f'platform_machine == "{machine}"' for machine in MACHINES]
    for way in ways:
        text = f" ; {way}" if way else ""
        if some == {machine for machine in every if machine.applies(Requirement(f"any{text}"))}:
            return text
    return sys.exit(f"no marker is known for {sorted(map(str, some))}")


def lines(lock: str) -> Iterator[str]:
    """The lock file."""
    every = machines(lock)
    where: dict[tuple[str, Version], set[Machine]] = defaultdict(set)
    for machine in every:
        for package in packages(lock, machine).items():
            where[package].add(machine)
    yield f"# Made by `make locks` from pyproject.toml and constraints.txt: pip install --require-hashes -r {lock}.txt"
    for (name, version), some in sorted(where.items()):
        of_version = [wheel for wheel in wheels(name) if wheel.version == version]
        hashes = sorted(wheel.sha256 for wheel in of_version if any(map(wheel.fits, some)))
        yield f"{name}=={version}{marker(some, every)} \\"
        yield " \\\n".join(f"    --hash=sha256:{one}" for one in hashes)


def main(names: list[str]) -> None:
    LOCKS.mkdir(parents=True, exist_ok=True)
    for lock in names or ["device", "coordinator", "torch-cuda", "digits", "build"]:
        text = "\n".join(lines(lock)) + "\n"
        (LOCKS / f"{lock}.txt").write_text(text, "utf-8")
        print(f"{lock}.txt: {text.count('==')} packages, {text.count('--hash')} hashes")


if __name__ == "__main__":
    main(sys.argv[1:])
