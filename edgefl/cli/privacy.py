"""`edgefl privacy`: how much noise a promise needs."""

from typing import Annotated, Literal

import typer

from edgefl.cli.options import Json

app = typer.Typer(no_args_is_help=True, help="How much noise a promise needs.")


@app.callback()
def group() -> None:
    """How much noise a promise needs."""


@app.command()
def calibrate(  # noqa: PLR0917 - the options of the command
    epsilon: Annotated[float, typer.Option(help="What a device may spend over the whole run.", show_default=False)],
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of the run.", show_default=False)],
    delta: Annotated[float, typer.Option(help="The probability with which the promise may fail.")] = 1e-5,
    clip: Annotated[float, typer.Option(help="The length to which models or updates are clipped.")] = 1.0,
    samples: Annotated[
        int | None, typer.Option(min=1, help="Of the smallest device: also say what the paper's formula would give.")
    ] = None,
    algorithm: Annotated[
        Literal["fedprox", "upcycled"], typer.Option(help="The run's; upcycled uses data in every second round only.")
    ] = "fedprox",
    json: Json = False,
) -> None:
    """Find the sigma of output perturbation that spends exactly epsilon at delta over the whole run.

    It holds for a device that takes part in every round, and for data sets that differ in one record of that device;
    how many records it has makes no difference.
    """
    from json import dumps

    from edgefl.learn.privacy import calibrate_sigma, output_sigma

    updates = (rounds + 1) // 2 if algorithm == "upcycled" else rounds
    sigma = output_sigma(updates, clip, epsilon, delta)
    published = None if samples is None else calibrate_sigma(updates, clip, epsilon, samples, delta)
    if json:
        record = {"sigma": sigma, "clip": clip, "delta": delta, "epsilon": epsilon, "updates": updates}
        typer.echo(dumps({**record, "sigma_as_published": published}))
        return
    what = f"{algorithm}: {updates} private updates of one device, clip = {clip:g}, delta = {delta:g}"
    typer.echo(f"sigma = {sigma:.6g}    # {what}")
    if published is not None:
        typer.echo(f"as published: {published:.6g} for {samples} samples, which promises no such epsilon")
