"""`edgefl bench`: where we stand, against a reference in the same run."""

from typing import Annotated

import typer

from edgefl.cli.bench_scale import scale
from edgefl.cli.options import Json

app = typer.Typer(no_args_is_help=True, help="Measure against a reference in the same run.")
app.command()(scale)


@app.callback()
def group() -> None:
    """Measure against a reference in the same run."""


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

    from edgefl.base.errors import ConfigError, nearest
    from edgefl.ops.bench import agent_memory
    from edgefl.ops.bench.cases import CASES
    from edgefl.ops.bench.device import boxed, steps, trainees
    from edgefl.ops.bench.report import show

    known = {case.network: case for case in CASES}
    for name in networks or ():
        if name not in known:
            raise ConfigError(f"--network {name}: not among those measured; {nearest(name, known)}")
    chosen = [known[name] for name in networks or known]
    lenet = known["lenet5"]
    with tempfile.TemporaryDirectory(prefix="edgefl-bench-") as folder:
        alone = trainees(lenet, Path(folder), repeats)
        comparisons = chain(steps(chosen, repeats), alone)
        show("Training on one thread, CPU time of a step", ("onnxruntime", "torch"), comparisons, json=json)
        whole = boxed(lenet, 10 * repeats, Path(folder))
        show("An agent with its box, a round of four batches", ("in a box", "in one process"), whole, json=json)
        real = agent_memory.measure(Path(folder))
        show("Memory of an agent, its fork server and its box", ("alone", "PSS here"), real, json=json)


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

    from edgefl.ops.bench.memory import MemoryBench, measure
    from edgefl.ops.bench.report import show

    with tempfile.TemporaryDirectory(prefix="edgefl-bench-", dir=Path.cwd()) as folder:  # /tmp may be memory
        plan = MemoryBench(params=params, devices=devices, answers=answers)
        show("Memory of a coordinator", ("ours", "reference"), measure(plan, Path(folder)), json=json)
