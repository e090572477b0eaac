"""`edgefl export`: the trained model as one ONNX file."""

import json as js
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgefl.cli.options import DataRoot, Json

if TYPE_CHECKING:
    from coordinator.exporting import Exported


def export(
    checkpoint: Annotated[
        Path, typer.Argument(help="A run's folder, or one of its checkpoint-*.safetensors.", show_default=False)
    ],
    out: Annotated[Path, typer.Argument(help="The file to write, with the suffix .onnx.", show_default=False)],
    int8: Annotated[bool, typer.Option("--int8", help="Weights of matrix products in eight bits.")] = False,
    data_root: DataRoot = None,
    json: Json = False,
) -> None:
    """Write a trained model as ONNX, compare it with the original, and say how good it is."""
    from coordinator.exporting import export_checkpoint

    made = export_checkpoint(checkpoint, out, int8=int8, root=data_root)
    if json:
        typer.echo(js.dumps({"event": "exported", **asdict(made), "path": str(made.path)}))
        return
    for line in told(made):
        typer.echo(line)


def told(made: "Exported") -> list[str]:
    """What an operator wants to know."""
    size = f"{made.bytes / 1000:.1f} kB"
    if made.int8:
        size += f" with int8 weights, {made.float_bytes / 1000:.1f} kB without"
    lines = [f"{made.path}: round {made.round} of '{made.run}', {size}", f"it says: {made.about}"]
    lines.append(f"parity: differs from torch by {made.parity:.1e} at most, on {made.samples} samples")
    if made.int8_bytes is not None and not made.int8:
        larger = f"{made.int8_bytes / 1000:.1f} kB"
        lines.append(f"int8: not used, it would make the file larger ({larger}); leave --int8 to larger models")
    if made.int8:
        lines.append(f"int8: differs from torch by {made.gap:.1e} at most")
    if made.tested and made.accuracy is not None:
        lines.append(
            f"accuracy: {made.accuracy:.4f} before, {made.exported_accuracy:.4f} as exported, on {made.tested} samples"
        )
    elif made.tested and made.rmse is not None:
        lines.append(f"RMSE: {made.rmse:.4g} before, {made.exported_rmse:.4g} as exported, on {made.tested} samples")
    elif made.untested:
        lines.append(f"not measured: {made.untested}")
    return lines
