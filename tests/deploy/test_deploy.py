"""What stands in deploy/ does what it says: units and examples can be read."""

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from zipfile import ZipFile

import pytest

from edgefl.job.config.agent_file import AgentFile
from edgefl.job.config.gateway import GatewayFile
from edgefl.job.config.page import PORT
from edgefl.job.config.reader import load, read_own
from edgefl.job.config.schema import RunFile

DEPLOY = Path(__file__).parents[2] / "deploy"
EXAMPLES = sorted(path.name for path in (DEPLOY / "examples").iterdir() if path.is_dir())


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_a_valid_run_file_and_agent_file_that_belong_together(example: str):
    folder = DEPLOY / "examples" / example
    run = load(RunFile, folder / "run.toml", environment={})
    agent = load(AgentFile, folder / "agent.toml", environment={})
    assert "url" not in run.broker.model_fields_set, "its fleet's broker"
    assert "agent" not in agent.model_fields_set, "its kit says who it is"
    assert agent.data.partition == run.task.partition
    if run.task.partition is not None:
        assert (agent.data.source, agent.data.seed) == (run.task.data, run.run.seed)
        assert agent.data.public == run.task.public


def test_the_network_of_ones_own_can_be_built(monkeypatch: pytest.MonkeyPatch):
    from edgefl.learn.models.build import build

    folder = DEPLOY / "examples" / "own_model"
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    model, params = build(read_own(folder / "run.toml")["task"]["model"], (1, 8, 8), 10, seed=0, device="cpu")
    assert model.layout.size == len(params) > 0


def unit(name: str) -> configparser.SectionProxy:
    parser = configparser.RawConfigParser(strict=False)  # a key may come twice; the last is enough here
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # keys keep their capitals
    parser.read(DEPLOY / "systemd" / name)
    return parser["Service"]


UNITS = tuple(sorted(path.name for path in (DEPLOY / "systemd").glob("*.service")))
FOR_EVER = {"edgefl-agent.service", "edgefl-broker.service", "edgefl-gateway.service", "edgefl-server.service"}


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_runs_without_rights_and_leaves_a_wrong_file_alone(name: str):
    service = unit(name)
    assert service["User"] == "edgefl"
    assert (service["NoNewPrivileges"], service["ProtectSystem"]) == ("yes", "strict")
    assert service["RestartPreventExitStatus"] == "2"
    assert service["StateDirectory"] == "edgefl"
    assert {"MemoryMax", "EnvironmentFile"} <= set(service)


@pytest.mark.parametrize("name", UNITS)
def test_systemd_hears_when_a_service_is_ready_and_starts_one_again_that_hangs(name: str):
    assert unit(name)["Type"] == "notify"
    assert unit(name)["WatchdogSec"] in {"1min", "5min"}


@pytest.mark.parametrize("name", UNITS)
def test_services_always_come_back_but_a_finished_run_does_not_begin_again(name: str):
    assert unit(name)["Restart"] == ("always" if name in FOR_EVER else "on-failure")


def test_several_runs_have_a_unit_each_that_differs_in_nothing_but_its_file():
    one, several = unit("edgefl-coordinator.service"), unit("edgefl-coordinator@.service")
    different = {key for key in {*one, *several} if one.get(key) != several.get(key)}
    assert different == {"ExecStart", "EnvironmentFile"}
    assert several["ExecStart"] == one["ExecStart"].replace("/run.toml", "/%i.toml")


@pytest.mark.parametrize("name", UNITS)
def test_systemd_understands_every_line_of_a_unit(name: str, tmp_path: Path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    text = (DEPLOY / "systemd" / name).read_text()
    (tmp_path / name).write_text(text.replace("/opt/edgefl/bin/edgefl", "/bin/true"))
    instance = name.replace("@.", "@night.")
    command = ["systemd-analyze", "verify", "--man=no", str(tmp_path / instance)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    complaints = [
        line for line in done.stderr.splitlines() if "edgefl" in line
    ]  # not those about the machine's own units
    assert complaints == []


def test_what_units_and_containers_set_by_environment_are_keys_of_our_files():
    texts = [path.read_text() for path in (*DEPLOY.glob("systemd/*"), *DEPLOY.glob("docker/*Dockerfile"))]
    texts.append((DEPLOY / "docker" / "compose.yaml").read_text())
    named = {m.groups() for text in texts for m in re.finditer(r"\bEDGEFL_([A-Z]+)__([A-Z_]+)[=:]", text)}
    known = {
        (section.upper(), key.upper())
        for file in (RunFile, AgentFile, GatewayFile)
        for section, field in file.model_fields.items()
        for key in getattr(field.annotation, "model_fields", ())
    }
    assert {("AGENT", "CONNECT_TIMEOUT"), ("BROKER", "URL"), ("RUN", "FOLDER")} <= named
    assert named <= known


def test_each_agent_of_the_compose_file_has_its_own_name_and_part():
    compose = (DEPLOY / "docker" / "compose.yaml").read_text()
    devices = load(RunFile, DEPLOY / "examples" / "digits" / "run.toml", environment={}).task.partition
    (listed,) = re.findall(r"--devices (\S+) --trial /etc/edgefl/run\.toml", compose)
    names = re.findall(r"^  (device-\d+):$", compose, re.MULTILINE)[:3]
    assert names == listed.split(",") == re.findall(r"/kits/(device-\d+)\.kit\]", compose)
    assert devices is not None
    assert len(names) == devices.devices


def test_the_broker_of_the_compose_file_is_edgefls_own_so_that_its_certificate_is_renewed():
    compose = (DEPLOY / "docker" / "compose.yaml").read_text()
    assert "command: [broker, start, --log, info]" in compose
    assert "apt-get install --yes --no-install-recommends mosquitto" in dockerfile("coordinator")
    for name in ("agent", "coordinator"):
        assert "XDG_STATE_HOME=/var/lib/edgefl" in dockerfile(name)


def test_the_page_of_the_compose_file_is_reached_from_this_machine_alone():
    compose = (DEPLOY / "docker" / "compose.yaml").read_text()
    assert "EDGEFL_PAGE__HOST: 0.0.0.0" in compose
    assert f'ports: ["127.0.0.1:{PORT}:{PORT}"]' in compose


def dockerfile(name: str) -> str:
    return (DEPLOY / "docker" / f"{name}.Dockerfile").read_text()


def copied(name: str) -> set[str]:
    """What an image takes from the build context of a clone: Docker's rules for the patterns that stand there."""
    tree = subprocess.run(["git", "ls-files"], cwd=DEPLOY.parent, check=True, capture_output=True, text=True)
    ignored = [line for line in (DEPLOY.parent / ".dockerignore").read_text().splitlines() if line[:1] not in {"#", ""}]
    patterns = [
        re.compile(re.escape(one).replace(r"\*\*/", "(.*/)?").replace(r"\*", "[^/]*") + "(/|$)") for one in ignored
    ]
    context = [path for path in tree.stdout.splitlines() if not any(pattern.match(path) for pattern in patterns)]
    sources = [
        word
        for line in dockerfile(name).splitlines()
        if line.startswith("COPY ") and "--from" not in line
        for word in line.split()[1:-1]
    ]
    return {path for path in context if any(one in {".", path} or path.startswith(f"{one}/") for one in sources)}


def wheel(source: Path, out: Path) -> set[str]:
    """The files of the package that is built of these sources."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(out),
        ".",
    ]
    subprocess.run(command, cwd=source, check=True, timeout=240)
    (built,) = out.glob("*.whl")
    with ZipFile(built) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def laid_out(paths: Iterable[str], folder: Path) -> Path:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(DEPLOY.parent / path, folder / path)
    return folder


@pytest.fixture(scope="module")
def tracked() -> list[str]:
    """The files of a clone."""
    tree = subprocess.run(["git", "ls-files"], cwd=DEPLOY.parent, check=True, capture_output=True, text=True)
    return tree.stdout.splitlines()


@pytest.fixture(scope="module")
def whole_wheel(tracked: list[str], tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    folder = tmp_path_factory.mktemp("whole")
    return wheel(laid_out(tracked, folder / "source"), folder / "out")


def test_the_wheel_holds_every_file_of_the_packages_and_nothing_else(whole_wheel: set[str], tracked: list[str]):
    """Pages and graphs as well as modules; neither tools with their planted bugs nor tests."""
    packages = {"edgefl", "coordinator", "device_agent", "gateway"}
    assert whole_wheel == {path for path in tracked if path.split("/")[0] in packages}
    assert not {path for path in whole_wheel if re.search(r"tests?/|tools/|chaos|planted|in_memory_broker", path)}


@pytest.mark.parametrize("image", ["agent", "coordinator"])
def test_an_image_holds_all_that_the_wheel_holds(image: str, whole_wheel: set[str], tmp_path: Path):
    assert wheel(laid_out(copied(image), tmp_path / "source"), tmp_path / "out") == whole_wheel
    assert "pip install --no-cache-dir --no-deps dist/*.whl" in dockerfile(image)


@pytest.mark.parametrize("image", ["agent", "coordinator"])
def test_a_health_check_tells_a_loop_that_hangs(image: str, tmp_path: Path):
    (listed,) = re.findall(r"HEALTHCHECK .* CMD (\[.*?\])\n", dockerfile(image).replace("\\\n", ""), re.DOTALL)
    _, *words = json.loads(listed)
    beat = tmp_path / "alive"
    assert "EDGEFL_HEARTBEAT=/tmp/edgefl.alive" in dockerfile(image)

    def healthy() -> bool:
        environment = {"EDGEFL_HEARTBEAT": str(beat)}
        return (
            subprocess.run([sys.executable, *words], env=environment, check=False, capture_output=True).returncode == 0
        )

    assert not healthy()
    beat.touch()
    assert healthy()
    os.utime(beat, (0, 0))
    assert not healthy()


def test_containers_stand_on_images_that_are_named_by_digest():
    docker = DEPLOY / "docker"
    bases = [
        line.split()[1]
        for path in docker.glob("*Dockerfile")
        for line in path.read_text().splitlines()
        if line.startswith("FROM ")
    ]
    assert bases == ["${PYTHON_IMAGE}"] * 4
    assert all("\nARG PYTHON_IMAGE\n" in path.read_text() for path in docker.glob("*Dockerfile"))  # no default: no tag
    foreign = re.findall(r"(?:image|PYTHON_IMAGE): (\S+)", (docker / "compose.yaml").read_text())
    assert sorted(set(foreign)) == [
        "${PYTHON_IMAGE:?run",
        "edgefl-agent",
        "edgefl-coordinator",
    ]


def test_images_are_pinned_by_what_the_registry_says_or_not_at_all(tmp_path):
    """With a docker that answers as the registry would."""
    script, fake = tmp_path / "pin.sh", tmp_path / "docker"
    script.write_text((DEPLOY / "docker" / "pin.sh").read_text())
    fake.write_text('#!/bin/sh\necho "$ANSWER"\n')
    fake.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    bad = subprocess.run(
        ["sh", script], check=False, env={**environment, "ANSWER": "unauthorized"}, capture_output=True
    )
    assert bad.returncode == 1
    assert not (tmp_path / "images.env").exists()
    subprocess.run(["sh", script], check=True, env={**environment, "ANSWER": "sha256:22"}, capture_output=True)
    assert (tmp_path / "images.env").read_text().splitlines()[1:] == ["PYTHON_IMAGE=python:3.11-slim@sha256:22"]
