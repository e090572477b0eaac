"""The examination that the fleet's operator may ask for from afar: `python -m edgefl.ops.doctor.afar AGENT_FILE`.

It is run by the agent, beside a training that it must not disturb. So it has the lowest priority, reads no data,
imports no engine that trains, and goes to no broker: a second client of this name would end the agent's connection.
No text in it holds values of the data: it quotes the machine, and keys and paths of the table [agent].
"""

import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from edgefl.job.config.agent_file import AgentFile
from edgefl.job.config.reader import load
from edgefl.ops.doctor.certificates import own, today
from edgefl.ops.doctor.finding import Finding, warning
from edgefl.ops.doctor.folders import folder, key_file
from edgefl.ops.doctor.machine import machine

LONGEST = 60  # seconds; then the kernel ends it, also if its agent was killed
DEVICE_KEY = "device.key"  # in the folder of the agent's name


def examine(file: AgentFile) -> Iterator[Finding]:
    """Return what is found, one thing after the other."""
    me = file.agent
    yield from machine()
    yield from folder(me.folder, "agent.folder")
    key = me.folder.expanduser() / me.id / DEVICE_KEY
    if key.exists():  # else the agent was given one
        yield key_file(key, "the device's key")
    if me.tls.key is not None:
        yield key_file(me.tls.key, "agent.tls.key")
    if me.tls.certificate is not None:
        yield own(me.tls.certificate, "agent.tls.certificate", today())
    if not file.compute.box:
        text = "compute.box = false: graphs from outside run in the agent's own process, beside its keys"
        yield warning("box", text, "set compute.box = true")


def main(words: Sequence[str]) -> int:
    """Print a finding as JSON on each line."""
    if sys.platform != "win32":
        signal.alarm(LONGEST)
        os.nice(19)
    for finding in examine(load(AgentFile, Path(words[0]), words[1:])):
        sys.stdout.write(f"{json.dumps(asdict(finding))}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
