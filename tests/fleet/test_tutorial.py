"""docs/tutorial.md, typed as it stands: real processes, a secured fleet, the stand-in for the logs."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from secured_fleet import free_ports

from edgefl.wire.broker import find_mosquitto

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text(encoding="utf-8")
OWN_TERMINAL = "# in a terminal of its own"
SIGNS = {"broker": "next, in another terminal", "coordinator": "watch it at", "agent": "connected device="}


class Shell:
    """Somebody who types what the page says, with the terminals that stay open."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.open = folder, list[subprocess.Popen[str]]()
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith(("XDG_", "EDGEFL_"))}
        self.environment |= {
            "HOME": str(folder),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONUNBUFFERED": "1",
            "EDGEFL_DATA": str(folder / "nothing"),  # so the logs are made up
            "EDGEFL_PAGE__PORT": "0",
        }

    def type(self, line: str) -> str:
        """What a command prints; one with a terminal of its own stays there when it has said its sign."""
        words = shlex.split(line, comments=True)
        if words[0] == "cd":
            self.folder /= words[1]
            return ""
        if words[:3] == ["edgefl", "fleet", "init"]:
            words += ["--host", "127.0.0.1", "--port", str(free_ports())]
        if OWN_TERMINAL in line:
            return self._leave_open(words)
        done = subprocess.run(
            words, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=400, check=False
        )
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
        return done.stdout

    def _leave_open(self, words: list[str]) -> str:
        process = subprocess.Popen(
            words, cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.open.append(process)
        assert process.stdout is not None
        heard = ""
        for text in process.stdout:
            heard += text
            if SIGNS[words[1]] in text:
                return heard
        return pytest.fail(f"{words}: {heard}")

    def rest_of_the_coordinator(self) -> str:
        text, _ = self.open[1].communicate(timeout=400)
        assert self.open[1].returncode == 0, text
        return text


@contextmanager
def shell(folder: Path) -> Iterator[Shell]:
    typing = Shell(folder)
    try:
        yield typing
    finally:
        for process in reversed(typing.open):
            process.terminate()
            process.communicate(timeout=60)


def commands() -> list[list[str]]:
    """The lines of each shell block."""
    return [block.strip().splitlines() for block in re.findall(r"^```sh\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE)]


def accuracy(text: str) -> float:
    """That of the last line that has one."""
    return float(re.findall(r"done: .*?accuracy\s+([0-9.]+)%", text)[-1])


@pytest.mark.night
@pytest.mark.broker
@pytest.mark.timeout(900)
def test_the_tutorial_works_and_together_they_beat_each_device_alone(tmp_path: Path) -> None:
    if find_mosquitto() is None:
        pytest.skip("mosquitto is not installed")
    logs, alone, fleet, status, after, extend, deploy = commands()
    (program,) = re.findall(r"^```python\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE)
    with shell(tmp_path) as typing:
        assert "made up" in typing.type(logs[0])
        typing.type(logs[1])
        singles = [accuracy(typing.type(line)) for line in alone]
        for line in fleet:
            typing.type(line)
        assert "activity" in typing.type(status[0])
        together = accuracy(typing.rest_of_the_coordinator())
        assert together > max(singles)
        report, slow, device = (typing.type(line) for line in after)
        assert (typing.folder / report.strip()).is_file()
        assert all(f"pi-0{i}" in slow for i in (1, 2, 3))
        assert "pi-02" in device
        assert "20 rounds" in typing.type(extend[0])
        (typing.folder / "use.py").write_text(program)
        assert re.fullmatch(r"the model says \w+, the log upstairs\n", typing.type(f"{sys.executable} use.py"))
        typing.type(deploy[0])
        assert "accuracy" in typing.type(deploy[1])
