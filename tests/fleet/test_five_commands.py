"""From a clone to a secured fleet of three devices in five commands, each printed by the one before, and what the
README.md says next: a fourth device with data of its own, in and out again; real processes."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest
from secured_fleet import free_ports

from edgefl.wire.broker import find_mosquitto

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
SMALL = ["--set", "run.rounds=2", "--set", "algorithm.epochs=1", "--no-rehearse"]


def from_the_readme(before: str) -> list[str]:
    """The commands of the block that comes after these words."""
    block = re.search(rf"{before}.*?```sh\n(.*?)```", README, re.DOTALL | re.MULTILINE)
    assert block is not None
    return [line.split("#")[0].strip() for line in block[1].splitlines() if line.strip()]


@contextmanager
def process(words: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A command while the block runs."""
    command = [str(Path(sys.executable).with_name("edgefl")), *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, cwd=ROOT
    ) as running:
        try:
            yield running
        finally:
            running.terminate()


def said(running: subprocess.Popen[str], pattern: str) -> str:
    """What stands behind the words on the line that has them."""
    assert running.stdout is not None
    heard = []
    for line in running.stdout:
        heard.append(line)
        if match := re.search(pattern, line):
            return match[1].strip()
    return pytest.fail(f"{pattern} was never said: {heard}")


@pytest.mark.broker
@pytest.mark.timeout(600)
def test_five_commands_are_enough_and_each_prints_the_next(tmp_path: Path) -> None:
    if find_mosquitto() is None:
        pytest.skip("mosquitto is not installed")
    install, init, start_broker, coordinate, enrol = from_the_readme("^## Five commands")
    add, enrol_it, start_it, revoke = from_the_readme("With your own data")
    assert install.endswith("make install")
    home = {key: value for key, value in os.environ.items() if not key.startswith(("XDG_", "EDGEFL_"))}
    home.update(HOME=str(tmp_path), PYTHONUNBUFFERED="1")

    def words(command: str) -> list[str]:
        program, *rest = shlex.split(command)
        assert program.endswith("edgefl")
        return rest

    here = ["--host", "127.0.0.1", "--port", str(free_ports()), "--out", str(tmp_path)]
    with ExitStack() as until_done:

        def run(command: list[str]) -> subprocess.Popen[str]:
            return until_done.enter_context(process(command, home))

        broker_command = said(run([*words(init), *here]), r"next, in a terminal of its own:  (.*)")
        assert words(broker_command) == words(start_broker)
        coordinator_command = said(run(words(broker_command)), r"next, in another terminal:  (.*)")
        assert words(coordinator_command) == words(coordinate)
        folder = ["--set", f"run.folder={tmp_path}/runs"]
        coordinator = run([*words(coordinator_command), *SMALL, *folder])
        enrol_command = said(coordinator, r"on each device, with its kit:  (.*)")
        assert words(enrol_command) == words(enrol)
        kits = sorted(tmp_path.glob("*.kit"))
        assert [kit.name for kit in kits] == ["pi-01.kit", "pi-02.kit", "pi-03.kit"]
        assert {kit.stat().st_mode & 0o777 for kit in kits} == {0o600}
        agents = [run([*words(enrol_command)[:2], str(kit), "--once"]) for kit in kits]
        told, _ = coordinator.communicate(timeout=400)
        assert coordinator.returncode == 0, told
        assert "done: 2 rounds" in told
        assert re.search(r"round 2  devices 3 ", told), told
        for agent in agents:
            text, _ = agent.communicate(timeout=60)
            assert agent.returncode == 0, text
            assert "the next start:" in text

        done = run([*words(add), "--out", str(tmp_path)])
        assert done.wait(60) == 0
        np.savez(tmp_path / "windows.npz", x=np.zeros((20, 1, 8, 8), np.float32), y=np.arange(20) % 10)
        device = {**home, "HOME": str(tmp_path / "pi")}  # a machine of its own
        at_home = [word.replace("/home/pi", str(tmp_path)) for word in words(enrol_it)]
        with process([*at_home[:2], str(tmp_path / at_home[2]), *at_home[3:]], device) as agent:
            said(agent, "connected (device=pi-04)")
        with process(words(start_it), device) as agent:
            said(agent, "connected (device=pi-04)")
            assert run(words(revoke)).wait(60) == 0
            said(agent, "(revoked)")
    private = [path for path in (tmp_path / ".local").rglob("*") if path.stat().st_mode & 0o077]
    assert private == [], "keys are their owner's alone"
