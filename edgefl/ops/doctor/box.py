"""What the kernel gives the process that runs graphs; tried in a process of its own, because it is for good."""

import json
import subprocess
import sys

from edgefl.job.config.local_compute import LocalCompute
from edgefl.ops.doctor.finding import Finding, ok, warning

PATIENCE = 60.0  # seconds
TRIED = """
import sys
sys.path[:] = [path for path in sys.path if path]
import json
from edgefl.system.confinement import confine
confined = confine(1 << 30)
print(json.dumps([confined.got, confined.missing]))
"""
REMEDY = (
    "Linux 5.13 or later has it all, if it is switched on (lsm=landlock,...) and a container or unit does not forbid it"
)


def box(compute: LocalCompute) -> Finding:
    """Whether graphs run in a box, and what that box cannot do."""
    if not compute.box:
        text = "compute.box = false: graphs from outside run in the agent's own process, beside its keys"
        return warning("box", text, "set compute.box = true")
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-c", TRIED], capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    try:
        got, missing = json.loads(done.stdout)
    except ValueError:
        lines = done.stderr.strip().splitlines() or ["it said nothing"]
        return warning("box", f"a process could not be confined ({lines[-1]})", "report this")
    return confined(got, missing)


def confined(got: list[str], missing: list[str]) -> Finding:
    """What this machine has."""
    if not missing:
        return ok("box", f"graphs run in a process with {', '.join(got)}")
    return warning("box", f"graphs run in a process without {', '.join(missing)}; it has {', '.join(got)}", REMEDY)
