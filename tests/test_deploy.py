"""What stands in deploy/ does what it says: units and examples can be read."""

import configparser
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from edgefl.config.agent_file import AgentFile
from edgefl.config.reader import load, read_toml
from edgefl.config.schema import RunFile
from edgefl.fleet import mosquitto
from edgefl.fleet.folder import FleetFolder

DEPLOY = Path(__file__).parents[1] / "deploy"
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
    from edgefl.models.build import build

    folder = DEPLOY / "examples" / "own_model"
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    model, params = build(read_toml(folder / "run.toml")["task"]["model"], (1, 8, 8), 10, seed=0, device="cpu")
    assert model.layout.size == len(params) > 0


def unit(name: str) -> configparser.SectionProxy:
    parser = configparser.RawConfigParser(strict=False)  # a key may come twice; the last is enough here
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # keys keep their capitals
    parser.read(DEPLOY / "systemd" / name)
    return parser["Service"]


UNITS = ("edgefl-agent.service", "edgefl-broker.service", "edgefl-coordinator.service")


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_runs_without_rights_and_leaves_a_wrong_file_alone(name: str):
    service = unit(name)
    assert service["User"] == "edgefl"
    assert (service["NoNewPrivileges"], service["ProtectSystem"]) == ("yes", "strict")
    assert service["RestartPreventExitStatus"] == "2"
    assert service["StateDirectory"] == "edgefl"
    assert {"MemoryMax", "EnvironmentFile"} <= set(service)


def test_an_agent_always_comes_back_but_a_finished_run_does_not_begin_again():
    assert [unit(name)["Restart"] for name in UNITS] == ["always", "always", "on-failure"]


@pytest.mark.parametrize("name", UNITS)
def test_systemd_understands_every_line_of_a_unit(name: str, tmp_path: Path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    text = (DEPLOY / "systemd" / name).read_text()
    (tmp_path / name).write_text(text.replace("/opt/edgefl/bin/edgefl", "/bin/true"))
    command = ["systemd-analyze", "verify", "--man=no", str(tmp_path / name)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    complaints = [line for line in done.stderr.splitlines() if name in line]  # not those about the machine's own units
    assert complaints == []


def test_what_units_and_containers_set_by_environment_are_keys_of_our_files():
    texts = [path.read_text() for path in (*DEPLOY.glob("systemd/*"), *DEPLOY.glob("docker/*Dockerfile"))]
    texts.append((DEPLOY / "docker" / "compose.yaml").read_text())
    named = {m.groups() for text in texts for m in re.finditer(r"\bEDGEFL_([A-Z]+)__([A-Z_]+)[=:]", text)}
    known = {
        (section.upper(), key.upper())
        for file in (RunFile, AgentFile)
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


def test_the_broker_of_the_compose_file_reads_what_fleet_init_writes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_STATE_HOME", "/var/lib/edgefl")
    written = FleetFolder("default").broker / mosquitto.CONFIGURATION
    assert f"mosquitto, -c, {written}]" in (DEPLOY / "docker" / "compose.yaml").read_text()
    for path in DEPLOY.glob("docker/*Dockerfile"):
        assert "XDG_STATE_HOME=/var/lib/edgefl" in path.read_text()


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
        "${MOSQUITTO_IMAGE:?run",
        "${PYTHON_IMAGE:?run",
        "edgefl-agent",
        "edgefl-coordinator",
    ]


def test_images_are_pinned_by_what_the_registry_says_or_not_at_all(tmp_path):
    """With a docker that answers as the registry would."""
    script, fake = tmp_path / "pin.sh", tmp_path / "docker"
    script.write_text((DEPLOY / "docker" / "pin.sh").read_text())
    fake.write_text('#!/bin/sh\ncase "$4" in python:*) echo sha256:11 ;; *) echo "$ANSWER" ;; esac\n')
    fake.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    bad = subprocess.run(
        ["sh", script], check=False, env={**environment, "ANSWER": "unauthorized"}, capture_output=True
    )
    assert bad.returncode == 1
    assert not (tmp_path / "images.env").exists()
    subprocess.run(["sh", script], check=True, env={**environment, "ANSWER": "sha256:22"}, capture_output=True)
    lines = (tmp_path / "images.env").read_text().splitlines()[1:]
    assert lines == ["PYTHON_IMAGE=python:3.11-slim@sha256:11", "MOSQUITTO_IMAGE=eclipse-mosquitto:2@sha256:22"]
