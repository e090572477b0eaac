"""`python -m tools.bench transport|peers|algorithms|simulator|server`.

Compare edgefl with other programs and bare loops, and measure what a server without a run costs.
"""

import json as as_text
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from edgefl.cli.options import Json
from edgefl.system.portable import posix_only

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


@app.callback()
def group() -> None:
    """Measure against others, and against bare programs, in the same run."""
    posix_only("python -m tools.bench")


@app.command()
def transport(  # noqa: PLR0917 - the command line's options
    devices: Annotated[int, typer.Option(min=1, help="Agent processes.")] = 10,
    params: Annotated[list[int] | None, typer.Option(min=1, help="Size of the model; may be given again.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds that count, five times as many for small models.")] = 10,
    repeats: Annotated[int, typer.Option(min=1, help="Turns of each side.")] = 3,
    broker: Annotated[Literal["mosquitto", "iotcore"], typer.Option(help="Which one to start.")] = "mosquitto",
    secured: Annotated[bool, typer.Option(help="What TLS, certificates, ACL and signatures cost.")] = False,
    json: Json = False,
) -> None:
    """Time rounds of coordinator and agents, against bare paho clients that move the same bytes.

    With --secured: rounds of a secured fleet, against the same without TLS and without signatures.
    """
    import tempfile

    from edgefl.base.errors import ConfigError
    from edgefl.ops.bench.report import show
    from tools.bench.services import Secured, Services, Unsigned
    from tools.bench.transport import TransportBench, against_bare, against_plain

    if secured and broker != "mosquitto":
        raise ConfigError(f"--secured --broker {broker}: the broker of a secured fleet is Mosquitto")
    plan = TransportBench(devices, tuple(params or TransportBench().params), rounds, repeats, broker)
    with tempfile.TemporaryDirectory(prefix="edgefl-bench-") as name:
        folder = Path(name)
        if secured:
            title, names = f"A round of {devices} agents of a secured fleet", ("secured", "plain")
            comparisons = against_plain(plan, Secured, Unsigned(), folder)
        else:
            title, names = f"A round of {devices} agents over {broker}", ("edgefl", "bare paho")
            comparisons = against_bare(plan, Services(), folder)
        show(title, names, comparisons, json=json)


@app.command()
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

    Flower needs a venv of its own, because it pins other versions: python3 -m venv FOLDER && FOLDER/bin/pip install
    flwr torch, then --flower FOLDER/bin/python. Where it is not installed its rows say so.
    """
    import tempfile

    from edgefl.base.errors import ConfigError, nearest
    from edgefl.ops.bench.report import load_now
    from edgefl.wire.mosquitto_program import mosquitto_version
    from tools.bench.peers import report as reports
    from tools.bench.peers.compare import PeerBench, Row, compare
    from tools.bench.peers.flower import interpreter
    from tools.bench.peers.loads import LOADS, SIMULATOR

    known = [*(load.name for load in LOADS), SIMULATOR]
    for name in jobs or ():
        if name not in known:
            raise ConfigError(f"--job {name}: not known; {nearest(name, known)}")
    chosen = jobs or known
    python = interpreter(flower)
    plan = PeerBench(devices, turns, tuple(load for load in LOADS if load.name in chosen))

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="edgefl-bench-") as folder:
        about = reports.facts(python, mosquitto_version(), Path(folder))
        rows += compare(plan, python, Path(folder), say)
    if SIMULATOR in chosen:
        from tools.bench.peers.simulator import compare_simulators

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


@app.command()
def algorithms(
    params: Annotated[int, typer.Option(min=1, help="Size of the model at the coordinator.")] = 1_000_000,
    repeats: Annotated[int, typer.Option(min=1, help="Turns of each side.")] = 3,
    json: Json = False,
) -> None:
    """Time our algorithms, against the arithmetic that cannot be avoided."""
    from edgefl.ops.bench.report import show
    from tools.bench.algorithms import ProblemSizes, compare

    show("CPU time", ("edgefl", "reference"), compare(ProblemSizes(params=params, repeats=repeats)), json=json)


@app.command()
def simulator(
    networks: Annotated[list[str] | None, typer.Option("--network", help="mlp, cnn, lstm; may be given again.")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Turns of each side.")] = 5,
    json: Json = False,
) -> None:
    """Time a simulated round, against a bare loop in torch and against its matrix products alone."""
    from edgefl.base.errors import ConfigError, nearest
    from edgefl.ops.bench.report import show
    from tools.bench.simulator import FLEETS, compare

    known = {fleet.network: fleet for fleet in FLEETS}
    for name in networks or ():
        if name not in known:
            raise ConfigError(f"--network {name}: not among those measured; {nearest(name, known)}")
    chosen = [known[name] for name in networks or known]
    show("A simulated round of 10 devices", ("edgefl", "reference"), compare(chosen, repeats), json=json)


@app.command()
def server(
    devices: Annotated[int, typer.Option(min=1, help="That are connected, each by TLS.")] = 1000,
    seconds: Annotated[float, typer.Option(min=1.0, help="How long each situation is watched.")] = 60.0,
    json: Json = False,
) -> None:
    """Memory and processor time of a server without a run: without a browser, and while one shows its page."""
    from tools.bench.server_idle import measure

    for cost in measure(devices, seconds, lambda text: print(text, file=sys.stderr, flush=True)):
        if json:
            typer.echo(as_text.dumps(asdict(cost)))
        else:
            typer.echo(
                f"{cost.situation}: {cost.resident_mb:.1f} MB resident, {cost.share_of_core:.2%} of a core "
                f"({cost.devices} devices, {cost.seconds:.0f} s)"
            )
