"""`edgefl agent`: what runs on a device."""

import json as js
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgefl.cli.options import DataRoot, Insecure, Json, Log, Sets
from edgefl.cli.program import program, shown

if TYPE_CHECKING:
    from edgefl.delivery.deployed import Predictor
    from edgefl.job.config.agent_file import AgentFile

app = typer.Typer(no_args_is_help=True, help="What runs on a device.")

AgentPath = Annotated[Path, typer.Argument(help="The agent file (TOML); `edgefl init` writes one.", show_default=False)]
MaybeModel = Annotated[
    Path | None, typer.Argument(help="The model (ONNX); `edgefl export` writes one.", show_default=False)
]
Own = Annotated[bool, typer.Option("--own", help="The model of its own that this device keeps of a run.")]
OwnRun = Annotated[
    str | None, typer.Option("--run", help="The run that left it; the newest unless said.", show_default=False)
]


@app.callback()
def group() -> None:
    """What runs on a device."""


@app.command()
def start(  # noqa: PLR0917 - options of a command
    agent: Annotated[
        Path | None,
        typer.Argument(help="The agent file; that of `agent enrol` unless said.", show_default=False),
    ] = None,
    set_: Sets = None,
    data_root: DataRoot = None,
    once: Annotated[bool, typer.Option("--once", help="End when a run is finished that was seen at work.")] = False,
    run: Annotated[str | None, typer.Option(help="With --once: the run to end with; others are served too.")] = None,
    insecure: Insecure = False,
    log: Log = "info",
) -> None:
    """Serve a fleet until Ctrl-C: fetch models, train on this device's data, send updates."""
    from device_agent.start import run as serve
    from edgefl.base.printable import printable

    code, reason = serve(agent, set_ or (), data_root, once=once, only=run, insecure=insecure, level=log)
    typer.echo(f"edgefl: {printable(reason)}", err=True)
    raise typer.Exit(code)


@app.command()
def enrol(  # noqa: PLR0917 - options of a command
    kit: Annotated[
        Path | None, typer.Argument(help="NAME.kit, as `edgefl fleet add NAME` wrote it.", show_default=False)
    ] = None,
    token: Annotated[
        str | None, typer.Option(help="Instead of a kit: the word that `edgefl fleet add NAME --token` printed.")
    ] = None,
    claim: Annotated[
        str | None, typer.Option(help="Instead of a kit: the word that `edgefl fleet claim` printed, for many devices.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="With --claim: the name to ask for; host name and serial number unless said.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="This device's data: npz:/path, csv:/path, package.module:name.")
    ] = None,
    with_: Annotated[Path | None, typer.Option("--with", help="An agent file; all but its [agent] is taken.")] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Where the agent keeps everything.", show_default="~/.local/state/edgefl")
    ] = None,
    install_only: Annotated[bool, typer.Option("--install-only", help="Do not start the agent.")] = False,
    once: Annotated[bool, typer.Option("--once", help="End when a run is finished that was seen at work.")] = False,
    log: Log = "info",
) -> None:
    """Make this machine the device that the kit, token or claim is for, and start its agent.

    With a token or a claim the private keys are made here and never leave this machine. With a claim it waits until a
    person accepts it.
    """
    import os
    import sys

    from device_agent import claiming
    from device_agent import enrol as enrolment
    from edgefl.base.errors import ConfigError
    from edgefl.fleet import claims, tokens
    from edgefl.fleet import enrolment as server
    from edgefl.fleet import kit as kits
    from edgefl.fleet.folder import state_folder
    from edgefl.system.processes import python

    home = (folder.expanduser().absolute() if folder else None) or state_folder()
    if sum(given is not None for given in (kit, token, claim)) != 1:
        raise ConfigError("give NAME.kit, or --token or --claim and no kit")
    if name is not None and claim is None:
        raise ConfigError("--name goes with --claim: a kit or token is for one name")
    asking = None
    if claim is not None and data is None and with_ is None:
        raise ConfigError("a claim names no data: give --data npz:/path/to/data.npz (or csv:..., or --with FILE)")
    if claim is not None:
        wish = claiming.name_of(name)
        member, asking = claiming.wait(claims.read_word(claim), wish, home, lambda line: typer.echo(line, err=True))
        kit = home / f"{member.name}{kits.SUFFIX}"
        kits.write(member, kit)
    if token is not None:
        word = tokens.read(token)
        kit = home / f"{word.name}{kits.SUFFIX}"  # a token counts once, so what it gave is kept until it is installed
        kits.write(server.enrol(word), kit)
    opened = kits.read(kit or Path())
    path = enrolment.install(opened, home, data, with_)
    typer.echo(f"this machine is '{opened.name}' of fleet '{opened.fleet}'; everything is in {path.parent}")
    if install_only and (missing := enrolment.missing_data(path)):
        typer.echo(f"edgefl: its agent will not train yet: {missing}", err=True)
    if kit is not None and (token is not None or asking is not None):
        kit.unlink()
        if asking is not None:
            asking.done()
    else:
        typer.echo(f"{kit} is no longer needed: delete it")
    typer.echo(f"the next start:  {program()} agent start {shown(path)}")
    if not install_only:
        sys.stdout.flush()
        words = ["agent", "start", str(path), "--log", log, *(["--once"] if once else [])]
        os.execv(sys.executable, python("edgefl", *words))  # noqa: S606  ourselves, without the parser


@app.command()
def key(agent: AgentPath, set_: Sets = None) -> None:
    """Say which key signs what this device sends; a run file that lists keys has it under [devices].

    The key is made if there is none yet.
    """
    from device_agent.durable import identity
    from edgefl.job.config.agent_file import AgentFile
    from edgefl.job.config.reader import load
    from edgefl.system.disk import FolderDisk

    me = load(AgentFile, agent, set_ or ()).agent
    disk = FolderDisk(me.folder.expanduser() / me.id)
    signer = identity.signer(disk)
    typer.echo(f"edgefl: the private key of '{me.id}' is {disk.where(identity.NAME)}", err=True)
    typer.echo(signer.key)


@app.command()
def evaluate(  # noqa: PLR0917 - options of a command
    agent: AgentPath,
    model: MaybeModel = None,
    own: Own = False,
    run: OwnRun = None,
    set_: Sets = None,
    data_root: DataRoot = None,
    json: Json = False,
) -> None:
    """Say how good a deployed model is on this device's own data, which stay here.

    With --own: the model of its own that this device keeps, and the shared model beside it.
    """
    from device_agent.shell import inference
    from edgefl.base.printable import printable
    from edgefl.base.scores import beside
    from edgefl.delivery.card import line
    from edgefl.job.config.agent_file import AgentFile
    from edgefl.job.config.reader import load
    from edgefl.learn.evaluation import wording

    file, own = load(AgentFile, agent, set_ or ()), own or run is not None
    if own == (model is not None):
        raise _one_model("MODEL")
    for of, usable in _usable(file, model, run):
        name = f"{of} model" if of else str(model)
        typer.echo(f"{name}: {printable(line(usable.card)) or 'says nothing about itself'}", err=True)
        for part, evaluation in inference.evaluate(file, usable, data_root):
            about = {"device": file.agent.id, **({"model": of} if of else {}), "part": part}
            if json:
                typer.echo(js.dumps({"event": "evaluated", **about, **beside(asdict(evaluation))}))
                continue
            scores, what = wording.scores(evaluation), f"{name}, {part}" if of else part
            typer.echo(f"{what}: {scores}  {evaluation.samples} samples  {evaluation.ms_per_sample:.3f} ms each")


@app.command()
def predict(  # noqa: PLR0917 - options of a command
    agent: AgentPath,
    model: Annotated[
        Path, typer.Argument(help="The model (ONNX); with --own left out, SAMPLES alone.", show_default=False)
    ],
    samples: Annotated[
        Path | None, typer.Argument(help="An .npz with an array x, or a .csv.", show_default=False)
    ] = None,
    own: Own = False,
    run: OwnRun = None,
    out: Annotated[Path | None, typer.Option(help="A .csv or .npz file; stdout unless said.")] = None,
    set_: Sets = None,
) -> None:
    """Say what a deployed model, or with --own this device's own model, makes of new samples."""
    from device_agent.shell import inference
    from edgefl.job.config.agent_file import AgentFile
    from edgefl.job.config.reader import load

    file, own = load(AgentFile, agent, set_ or ()), own or run is not None
    if own == (samples is not None):
        raise _one_model("MODEL and SAMPLES")
    (_, usable), *_ = _usable(file, None if own else model, run)
    predictions = inference.predict(usable, inference.samples(samples or model, usable, file.data))
    if out is not None:
        inference.write(out, predictions)
        typer.echo(f"{out}: {len(predictions.values)} predictions", err=True)
        return
    for line in inference.table(predictions):
        typer.echo(line)


@app.command()
def export(
    agent: AgentPath,
    out: Annotated[Path, typer.Argument(help="The file to write, with the suffix .onnx.", show_default=False)],
    run: OwnRun = None,
    set_: Sets = None,
) -> None:
    """Write this device's own model as ONNX, here on the device: it holds what was learnt from its data alone."""
    from device_agent.shell import own_inference
    from edgefl.base.printable import printable
    from edgefl.delivery.card import line
    from edgefl.job.config.agent_file import AgentFile
    from edgefl.job.config.reader import load

    own, _ = own_inference.open_own(load(AgentFile, agent, set_ or ()), run)
    gap = own_inference.export(own, out)
    typer.echo(f"{out}: {printable(line(own.card))}, {out.stat().st_size / 1000:.1f} kB; differs by {gap:.1e} at most")


def _usable(file: "AgentFile", model: Path | None, run: str | None) -> Iterator[tuple[str, "Predictor"]]:
    """The model of a file; or the device's own and the shared one beside it, each with its name."""
    if model is not None:
        from device_agent.shell import inference

        yield "", inference.open_model(file, model)
        return
    from device_agent.shell import own_inference

    yield from zip(("own", "shared"), own_inference.open_own(file, run), strict=True)


def _one_model(what: str) -> Exception:
    from edgefl.base.errors import ConfigError

    return ConfigError(f"give {what}, or --own {'and SAMPLES alone' if ' ' in what else f'and no {what}'}")
