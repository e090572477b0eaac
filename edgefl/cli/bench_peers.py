"""`edgefl bench peers`: our rounds beside Flower's gRPC loop and beside clients without a framework."""

import json as as_text
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgefl.cli.options import Json

if TYPE_CHECKING:
    from edgefl.bench.peers.side import Programs
    from edgefl.protocol.address import Address


def peers(  # noqa: PLR0917 - the options of the command
    flower: Annotated[
        Path | None, typer.Option(metavar="PYTHON", help="The Python that has flwr; ours, if it has it, unless said.")
    ] = None,
    jobs: Annotated[list[str] | None, typer.Option("--job", help="J1, J2, J3, simulator; may be given again.")] = None,
    devices: Annotated[int, typer.Option(min=1, help="Client processes of each side.")] = 10,
    turns: Annotated[int, typer.Option(min=1, help="Of each side.")] = 5,
    report: Annotated[
        Path | None, typer.Option(help="Write the table, the machine and the versions to this file.")
    ] = None,
    json: Json = False,
) -> None:
    """Rounds of coordinator and agents beside Flower's gRPC loop, bare gRPC and bare paho, and simulators beside torch.

    Flower belongs into a venv of its own, as its pins are not ours: python3 -m venv FOLDER && FOLDER/bin/pip install
    flwr torch, then --flower FOLDER/bin/python. Where it is not installed its rows say so.
    """
    import tempfile

    from edgefl.bench.peers import report as reports
    from edgefl.bench.peers.compare import Plan, Row, compare
    from edgefl.bench.peers.flower import interpreter
    from edgefl.bench.peers.loads import LOADS, SIMULATOR
    from edgefl.bench.report import load_now
    from edgefl.errors import ConfigError, nearest
    from edgefl.protocol.broker import mosquitto_version

    known = [*(load.name for load in LOADS), SIMULATOR]
    for name in jobs or ():
        if name not in known:
            raise ConfigError(f"--job {name}: not known; {nearest(name, known)}")
    chosen = jobs or known
    python = interpreter(flower)
    plan = Plan(devices, turns, tuple(load for load in LOADS if load.name in chosen))

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="edgefl-bench-") as folder:
        about = reports.facts(python, mosquitto_version(), Path(folder))
        rows += compare(plan, _programs, python, Path(folder), say)
    if SIMULATOR in chosen:
        from edgefl.bench.peers.simulator import compare_simulators

        say(SIMULATOR)
        rows += compare_simulators(turns)
    about["load_after"] = load_now()
    if json:
        typer.echo(as_text.dumps(about))
        for row in rows:
            typer.echo(as_text.dumps(asdict(row)))
    else:
        typer.echo("\n".join(reports.aligned(rows)))
        for line in reports.lost(rows):
            typer.echo(f"we lose: {line}")
    if report is not None:
        report.write_text(reports.markdown(plan, rows, about), encoding="utf-8")


def _programs(address: "Address", clients: int, folder: Path, *, trains: bool) -> "Programs":
    """Ours: the real coordinator and the real agents, with all that they keep in this folder."""
    from edgefl.bench.peers.side import Programs
    from edgefl.system.processes import python

    def run(module: str, *arguments: str) -> list[str]:
        return python(f"edgefl.cli.{module}", str(address), *arguments)

    agent = "bench_training_agent" if trains else "bench_agent"
    return Programs(
        "edgefl",
        lambda line: run("bench_coordinator", str(line), str(clients), str(folder), *(["trains"] if trains else [])),
        lambda i: run(agent, f"device-{i:02d}", str(folder), *([str(i)] if trains else [])),
    )
