"""Every base dependency has a wheel for a 64-bit Raspberry Pi: nothing is ever compiled on a device."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
BOOKWORM = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_26", "manylinux_2_17", "manylinux2014")

pytestmark = pytest.mark.skipif(
    not os.environ.get("EDGEFL_INDEX"), reason="asks the package index; EDGEFL_INDEX=1 runs it"
)


def requirements(python: str) -> list[str]:
    """The base dependencies as pip would read them on an ARM device with this Python."""
    from packaging.requirements import Requirement

    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    device = {"platform_machine": "aarch64", "python_version": python, "python_full_version": f"{python}.0"}
    declared = map(Requirement, tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["dependencies"])
    return [f"{r.name}{r.specifier}" for r in declared if r.marker is None or r.marker.evaluate(device)]


@pytest.fixture(scope="module")
def index() -> None:
    try:
        socket.create_connection(("pypi.org", 443), 5).close()
    except OSError as error:
        pytest.skip(f"the package index is not reachable: {error}")


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13"])
def test_all_that_an_agent_needs_is_there_as_wheels_for_arm(python: str) -> None:
    platforms = [word for tag in BOOKWORM for word in ("--platform", f"{tag}_aarch64")]
    report = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"),
            *("--only-binary", ":all:", "--target", "unused", "--implementation", "cp", "--python-version", python),
            *platforms,
            *requirements(python),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert report.returncode == 0, report.stderr
    wheels = {
        one["metadata"]["name"].lower(): one["download_info"]["url"] for one in json.loads(report.stdout)["install"]
    }
    assert {"numpy", "onnxruntime", "paho-mqtt", "pydantic"} <= set(wheels)
    assert all(url.endswith(("aarch64.whl", "any.whl")) for url in wheels.values()), wheels
    assert "aarch64" in wheels["onnxruntime"]
