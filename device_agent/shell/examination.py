"""The doctor's look at this machine, in a process of its own: what it imports is gone from memory when it ends.

It is started by a question of the fleet's operator. It runs with the lowest priority, reads no data, and goes to no
broker: see `edgefl.ops.doctor.afar`.
"""

from collections.abc import Sequence
from pathlib import Path
from threading import Thread

from pydantic import ValidationError

from device_agent.shell.setup import Diagnosed
from edgefl.system.background import Put
from edgefl.system.json_text import parse_json
from edgefl.wire.messages import MOST_FINDINGS, REPLY, Examined

PATIENCE = 60.0  # seconds; on an SD card most of it is importing
MODULE = "edgefl.ops.doctor.afar"


class Examination:
    """Examines what the agent of this file needs."""

    def __init__(self, path: Path, sets: Sequence[str]) -> None:
        self.words = [str(path), *sets]

    def __call__(self, put: Put) -> None:
        """Begin; what was found comes as an event."""
        Thread(target=lambda: put(self.run()), name="examination", daemon=True).start()

    def run(self) -> Diagnosed:
        """Examine, and wait for it."""
        import subprocess  # noqa: PLC0415 - half a megabyte, and most agents are never asked

        from edgefl.system.processes import python  # noqa: PLC0415 - as above

        try:
            done = subprocess.run(  # noqa: S603 - our own command
                python(MODULE, *self.words), capture_output=True, check=False, timeout=PATIENCE
            )
        except (OSError, subprocess.SubprocessError) as error:
            return Diagnosed(failure=f"{type(error).__name__}: {error}")
        if done.returncode:
            lines = done.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"]
            return Diagnosed(failure=f"exit code {done.returncode}: {lines[-1]}")
        try:
            lines = done.stdout[:REPLY].decode().splitlines()[:MOST_FINDINGS]
            return Diagnosed(tuple(Examined.model_validate(parse_json(line)) for line in lines))
        except (ValueError, ValidationError) as error:
            return Diagnosed(failure=f"it said what is no finding ({type(error).__name__})")
