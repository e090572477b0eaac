"""`edgefl bench`: where we stand, against a reference in the same run."""

import json as js
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from edgefl.cli.bench_peers import peers
from edgefl.cli.bench_scale import scale
from edgefl.cli.options import Json

if TYPE_CHECKING:
    from edgefl.bench.report import Comparison

app = typer.Typer(no_args_is_help=True, help="Measure against a reference in the same run.")
app.command()(peers)
app.command()(scale)


@app.callback()
def group() -> None:
    """Measure against a reference in the same run."""


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
    """Rounds of coordinator and agents, against bare paho clients that move the same bytes.

    With --secured: those of a secured fleet, against the same without TLS and without signatures.
    """
    import tempfile
    from pathlib import Path

    from edgefl.bench.transport import Plan, against_bare, against_plain
    from edgefl.cli.bench_transport import Secured, Services, Unsigned
    from edgefl.errors import ConfigError

    if secured and broker != "mosquitto":
        raise ConfigError(f"--secured --broker {broker}: the broker of a secured fleet is Mosquitto")
    plan = Plan(devices, tuple(params or Plan().params), rounds, repeats, broker)
    with tempfile.TemporaryDirectory(prefix="edgefl-bench-") as name:
        folder = Path(name)
        if secured:
            title, names = f"A round of {devices} agents of a secured fleet", ("secured", "plain")
            comparisons = against_plain(plan, Secured, Unsigned(), folder)
        else:
            title, names = f"A round of {devices} agents over {broker}", ("edgefl", "bare paho")
            comparisons = against_bare(plan, Services(), folder)
        _print(title, names, comparisons, json)


@app.command()
def device(
    networks: Annotated[list[str] | None, typer.Option("--network", help="Of the zoo; may be given again.")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Turns of each side.")] = 5,
    json: Json = False,
) -> None:
    """Training on onnxruntime, against torch: a step, memory, and the time to the first step; what a box costs."""
    import tempfile
    from itertools import chain
    from pathlib import Path

    from device_agent import enrol
    from edgefl.bench import agent_memory
    from edgefl.bench.cases import CASES
    from edgefl.bench.device import boxed, steps, trainees
    from edgefl.errors import ConfigError, nearest
    from edgefl.system.processes import python

    known = {case.network: case for case in CASES}
    for name in networks or ():
        if name not in known:
            raise ConfigError(f"--network {name}: not among those measured; {nearest(name, known)}")
    chosen = [known[name] for name in networks or known]
    lenet = known["lenet5"]
    with tempfile.TemporaryDirectory(prefix="edgefl-bench-") as folder:
        alone = trainees(
            lenet,
            lambda kind, graphs: python("edgefl.cli.bench_trainee", kind, lenet.network, str(graphs)),
            Path(folder),
            repeats,
        )
        comparisons = chain(steps(chosen, repeats), alone)
        _print("Training on one thread, CPU time of a step", ("onnxruntime", "torch"), comparisons, json)
        whole = boxed(
            lenet,
            lambda graphs: python("edgefl.cli.bench_boxed", lenet.network, str(graphs), str(10 * repeats)),
            Path(folder),
        )
        _print("An agent with its box, a round of four batches", ("in a box", "in one process"), whole, json)
        real = agent_memory.measure(lambda kit, home, data: enrol.install(kit, home, data=data), Path(folder))
        _print("Memory of an agent, its zygote and its box", ("alone", "PSS here"), real, json)


@app.command()
def coordinator(
    params: Annotated[int, typer.Option(min=1000, help="Size of the model.")] = 1_000_000,
    devices: Annotated[int, typer.Option(min=1, help="Real agents.")] = 10,
    answers: Annotated[int, typer.Option(min=10, help="Of one large round, merged without a network.")] = 1_000,
    json: Json = False,
) -> None:
    """How much memory a coordinator takes: waiting, working, and for a round of many answers."""
    import tempfile
    from pathlib import Path

    from edgefl.bench.memory import Plan, measure
    from edgefl.system.processes import python

    def merge(params: int, answers: int, folder: Path) -> list[str]:
        return python("edgefl.cli.bench_merge", str(params), str(answers), str(folder))

    with tempfile.TemporaryDirectory(prefix="edgefl-bench-", dir=Path.cwd()) as folder:  # /tmp may be memory
        plan = Plan(params=params, devices=devices, answers=answers)
        _print("Memory of a coordinator", ("ours", "reference"), measure(plan, merge, Path(folder)), json)


@app.command()
def algorithms(
    params: Annotated[int, typer.Option(min=1, help="Size of the model at the coordinator.")] = 1_000_000,
    repeats: Annotated[int, typer.Option(min=1, help="Turns of each side.")] = 3,
    json: Json = False,
) -> None:
    """Our algorithms, against the arithmetic that nobody can avoid."""
    from edgefl.bench.algorithms import Sizes, compare

    _print("CPU time", ("edgefl", "reference"), compare(Sizes(params=params, repeats=repeats)), json)


@app.command()
def simulator(
    networks: Annotated[list[str] | None, typer.Option("--network", help="mlp, cnn, lstm; may be given again.")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Turns of each side.")] = 5,
    json: Json = False,
) -> None:
    """A simulated round, against a bare loop in torch and against its matrix products alone."""
    from edgefl.bench.simulator import FLEETS, compare
    from edgefl.errors import ConfigError, nearest

    known = {fleet.network: fleet for fleet in FLEETS}
    for name in networks or ():
        if name not in known:
            raise ConfigError(f"--network {name}: not among those measured; {nearest(name, known)}")
    chosen = [known[name] for name in networks or known]
    _print("A simulated round of 10 devices", ("edgefl", "reference"), compare(chosen, repeats), json)


def _print(title: str, names: tuple[str, str], comparisons: "Iterable[Comparison]", as_json: bool) -> None:
    """The machine, then everything that was found."""
    from edgefl.bench import report

    facts = report.machine()
    if as_json:
        typer.echo(js.dumps(facts))
        for one in comparisons:
            typer.echo(js.dumps({"bench": title, **one.record()}))
        return
    typer.echo(report.heading(facts) + "\n")
    for line in report.table(title, names, comparisons):
        typer.echo(line)
