"""A server process and our end of the line on which it is told to play.

The line is a socket in a file. We write an order, a JSON object with `params`, `rounds`, `codec`, `pids` and what else
the server understands. After each round it writes what the clock says and how much CPU time each of these processes has
used, as we may read it later than it was; after the last one, what came of it (`line.py`). So it may be any program, in
any interpreter.
"""

import json
import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from edgefl.base.errors import RunError
from edgefl.system.processes import Child

ENVIRONMENT = {"OMP_NUM_THREADS": "1"}  # many clients on a few cores: more threads only wait for one another
COME, ANSWER = 120.0, 900.0  # seconds for a server to start, and for a round


@dataclass(frozen=True, slots=True)
class Mark:
    """The end of a round: when it was, and the CPU seconds of each process until then; one that has gone has none."""

    moment: float
    cpu: dict[int, float]

    def since(self, earlier: "Mark", pids: Iterable[int]) -> float:
        """CPU seconds of these processes since an earlier mark."""
        return sum(self.cpu[pid] - earlier.cpu[pid] for pid in pids if pid in self.cpu and pid in earlier.cpu)


class BenchServer:
    """One that is running, for as long as `until_done` lasts."""

    def __init__(self, name: str, command: Callable[[Path], list[str]], folder: Path, until_done: ExitStack) -> None:
        folder.mkdir()
        self.name = name
        self._door = until_done.enter_context(socket.socket(socket.AF_UNIX))
        self._door.bind(str(folder / "line"))
        self._door.listen()
        self.child = start(until_done, command(folder / "line"), folder / "server.log")
        self._until_done = until_done
        self._line: TextIO | None = None

    def play(
        self, order: dict[str, Any], watched: Sequence[Child], seen: Callable[[int], None]
    ) -> tuple[list[Mark], Any]:
        """The marks of all rounds and what came of them; `seen` hears of each round when we do.

        One of those who are `watched` is blamed, with its last words, if the server does not get on.
        """
        try:
            line = self._line or self._connected()
            line.write(json.dumps(order) + "\n")
            line.flush()
            marks = []
            for number in range(1, order["rounds"] + 1):
                moment, cpu = json.loads(line.readline())
                told = zip(order["pids"], cpu, strict=True)
                marks.append(Mark(moment, {pid: seconds for pid, seconds in told if seconds is not None}))
                seen(number)
            return marks, json.loads(line.readline())
        except (TimeoutError, ConnectionError, json.JSONDecodeError):  # an empty line: it has closed
            gone = next((child for child in (*watched, self.child) if child.gone.is_set()), self.child)
            raise RunError(f"{self.name} did not finish its rounds: {gone.last_words()}") from None

    def _connected(self) -> TextIO:
        self._door.settimeout(COME)
        line, _ = self._door.accept()
        line.settimeout(ANSWER)
        self._until_done.callback(line.close)
        self._line = both_ways = self._until_done.enter_context(line.makefile("rw", encoding="utf-8"))
        return both_ways


def start(until_done: ExitStack, command: list[str], output: Path) -> Child:
    """A process of the bench."""
    child = Child(command, output, environment=ENVIRONMENT)
    until_done.callback(child.stop)
    return child


def pid(child: Child) -> int:
    assert child.process is not None  # noqa: S101 - it was started, or there is none
    return child.process.pid


def numbers_of(command: list[str], output: Path) -> dict[str, Any]:
    """Run a process of the bench to its end; return what its last line says (Any: numbers, or lists of them)."""
    # An installed package has its bytecode: here the first start leaves it, whatever this shell thinks of that.
    child = Child(command, output, environment={"PYTHONDONTWRITEBYTECODE": ""})
    child.gone.wait()
    child.stop()
    if child.exit_code:
        raise RunError(f"a process of the bench failed: {child.last_words()}")
    numbers: dict[str, Any] = json.loads(output.read_text().splitlines()[-1])
    return numbers
