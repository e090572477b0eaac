"""The entry of the command line. `edgefl agent start` and `--version` go straight through, the rest to the parser.

`edgefl agent start` runs for months on a small device, and the parser with all its commands would stay in memory with
it: 7 MB. So its few options are read here when they are plain; anything else, `--help` and mistakes included, is the
parser's, which knows what to say. `edgefl --version` is answered here in a sixth of the time.
"""

import gc
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from edgefl.base.version import __version__


@dataclass(frozen=True, slots=True)
class Start:
    """What `edgefl agent start` was told."""

    agent: Path | None = None
    sets: tuple[str, ...] = ()
    data_root: Path | None = None
    once: bool = False
    run: str | None = None
    level: str = "info"
    insecure: bool = False


def main() -> None:
    """Run a command."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before numpy is imported: `edgefl.system.blas` says why
    if sys.argv[1:] == ["--version"]:
        print(f"edgefl {__version__}")
        return
    asked = plain(sys.argv[1:])
    if asked is not None:
        sys.exit(serve(asked))
    from edgefl.cli.app import main as parsed

    parsed()


def plain(words: Sequence[str]) -> Start | None:
    """What these words tell an agent, or None if they are not all plain."""
    if list(words[:2]) != ["agent", "start"]:
        return None
    files: list[str] = []
    flags, values = set[str](), dict[str, list[str]]({"--set": [], "--data-root": [], "--log": [], "--run": []})
    rest = iter(words[2:])
    for word in rest:
        name, equals, value = word.partition("=")
        if name in values:
            values[name].append(value if equals else next(rest, ""))
        elif word in {"--once", "--insecure"}:
            flags.add(word)
        else:
            files.append(word)
    if len(files) > 1 or any(argument[:1] in {"", "-"} for argument in chain(files, *values.values())):
        return None
    root, level, run = (values[name][-1:] for name in ("--data-root", "--log", "--run"))
    return Start(
        Path(*files) if files else None,
        tuple(values["--set"]),
        Path(*root) if root else None,
        "--once" in flags,
        run[0] if run else None,
        level[0] if level else "info",
        "--insecure" in flags,
    )


def serve(asked: Start) -> int:
    """Be an agent until told to stop; the exit code."""
    from edgefl.base.errors import EdgeflError
    from edgefl.base.printable import printable
    from edgefl.system.portable import posix_only
    from edgefl.system.slim_imports import slim

    slim()
    gc.disable()  # what is imported is there to stay: looking for garbage in it only takes time
    try:
        posix_only("edgefl agent")
        from device_agent.box.fork_server import ForkServer
        from edgefl.system.resident_memory import one_heap

        one_heap()
        fork_server = ForkServer()  # before anything else is imported: a box needs none of it, and shall know nothing
        from device_agent.start import run

        gc.freeze()
        gc.enable()
        code, reason = run(
            asked.agent,
            asked.sets,
            asked.data_root,
            once=asked.once,
            only=asked.run,
            insecure=asked.insecure,
            level=asked.level,
            fork_server=fork_server,
        )
    except EdgeflError as error:
        code, reason = error.exit_code, str(error)
    except KeyboardInterrupt:
        code, reason = 130, "interrupted"
    print(f"edgefl: {printable(reason)}", file=sys.stderr)
    return code
