"""`edgefl export`: the trained model as one ONNX file."""

import json as js
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgefl.cli.options import DataRoot, Json

if TYPE_CHECKING:
    from coordinator.shell.exporting import Exported


def export(  # noqa: PLR0917 - the options of the command
    checkpoint: Annotated[
        Path, typer.Argument(help="A run's folder, or one of its checkpoint-*.safetensors.", show_default=False)
    ],
    out: Annotated[Path, typer.Argument(help="The file to write, with the suffix .onnx.", show_default=False)],
    best: Annotated[bool, typer.Option("--best", help="The best model of the run, not the last.")] = False,
    int8: Annotated[bool, typer.Option("--int8", help="Weights of matrix products in eight bits.")] = False,
    model: Annotated[
        str | None,
        typer.Option(
            help="The package.module:factory of a network of your own; a checkpoint may not name code.",
            show_default=False,
        ),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(
            help="The run file, in place of --model: code and data that it names may be run and read.",
            show_default=False,
        ),
    ] = None,
    data_root: DataRoot = None,
    json: Json = False,
) -> None:
    """Write a trained model as ONNX, compare it with the original, and say how good it is."""
    from coordinator.shell.exporting import export_checkpoint
    from edgefl.base.errors import ConfigError
    from edgefl.base.scores import beside
    from edgefl.job.config.reader import load
    from edgefl.job.config.schema import RunFile
    from edgefl.system import user_code

    own = None if run is None else load(RunFile, run)
    if own is not None:
        named = own.task.model
        if model is not None and model != named:
            raise ConfigError(f"--model {model}: task.model of {run} is '{named}'; give one of the two")
        model = named
    user_code.allow(model)
    exported = export_checkpoint(checkpoint, out, best=best, int8=int8, root=data_root, network=model, own=own)
    if json:
        typer.echo(js.dumps({"event": "exported", **beside(asdict(exported)), "path": str(exported.path)}))
        return
    for line in told(exported):
        typer.echo(line)


def told(exported: "Exported") -> list[str]:
    """What an operator wants to know."""
    from edgefl.learn.evaluation.figures import chief

    size = f"{exported.bytes / 1000:.1f} kB"
    if exported.int8:
        size += f" with int8 weights, {exported.float_bytes / 1000:.1f} kB without"
    lines = [f"{exported.path}: round {exported.round} of '{exported.run}', {size}", f"it says: {exported.about}"]
    lines.append(f"parity: differs from torch by {exported.parity:.1e} at most, on {exported.samples} samples")
    if exported.int8_bytes is not None and not exported.int8:
        larger = f"{exported.int8_bytes / 1000:.1f} kB"
        lines.append(f"int8: not used, it would make the file larger ({larger}); leave --int8 to larger models")
    if exported.int8:
        lines.append(f"int8: differs from torch by {exported.gap:.1e} at most")
    before, after = chief(exported.scores), chief(exported.exported_scores)
    if before and after:
        lines.append(f"{before.title}: {before.exact} before, {after.exact} as exported, on {exported.tested} samples")
    elif exported.untested:
        lines.append(f"not measured: {exported.untested}")
    return lines
