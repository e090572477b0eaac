"""What a restructuring must not change: commands, keys, facts and the models of all algorithms, as one JSON file.

    python -m tools.snapshot before.json              writes it
    python -m tools.snapshot --against before.json    prints what is different now, exit code 1 if anything is

Models are compared by their hash, which depends on the machine: compare snapshots of one machine only.
"""

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from edgefl.base import events
from edgefl.cli.app import app as product
from edgefl.job.config.agent_file import AgentFile
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.job.run.job import device_names
from edgefl.learn.algorithms.registry import ALGORITHMS
from edgefl.sim.emulator import emulate
from edgefl.sim.loop import simulate
from tools.command import run

BASE = {
    "run": {"name": "snapshot", "rounds": 4, "seed": 3},
    "task": {
        "data": "synthetic",
        "model": "mlp",
        "public": 0.1,
        "partition": {"kind": "dirichlet", "omega": 0.5, "devices": 4},
    },
    "algorithm": {"batch": 64},
    "rounds": {"cohort": 3, "quorum": 2, "deadline": 120.0},
}
NEED_TORCH = {"moon", "fedmlb"}
PRIVATE = {"fedper", "fedrep", "fedbn"}
VARIANTS: dict[str, dict[str, Any]] = {
    "int8": {"wire": {"up": {"codec": "int8"}, "down": {"codec": "int8"}}},
    "topk": {"wire": {"up": {"codec": "topk", "share": 0.1}}},
    "float16": {"wire": {"codec": "float16"}},
    "median": {"aggregation": [{"name": "median"}]},
    "output": {"algorithm": {"name": "fedprox"}, "privacy": {"mechanism": "output", "clip": 1.0, "sigma": 1.0}},
    "devices judge": {"evaluation": {"on": "devices"}},
    "normalised": {"task": {"normalise": "fleet", "class_weights": "balanced"}},
}


def merged(table: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Return the table with these keys set, section by section."""
    return table | {
        key: {**table.get(key, {}), **value} if isinstance(value, dict) else value for key, value in more.items()
    }


def models() -> dict[str, str]:
    """Return the hash of the last model of each algorithm and variant, in the loop and in the emulated fleet."""
    hashes: dict[str, str] = {}
    cases = {name: {"algorithm": {"name": name}} for name in ALGORITHMS} | VARIANTS
    for name, more in cases.items():
        table = merged(merged(BASE, {"algorithm": {"name": "fedavg"}}), more)
        if name in NEED_TORCH:
            table["task"]["backend"] = "torch"
        if name in PRIVATE:
            table["algorithm"]["private"] = ["*.bias"]
        try:
            job, split = jobs.prepare(parse(RunFile, table, "snapshot", environment={}))
            devices = dict(zip(device_names(len(split.devices)), split.devices, strict=True))
            hashes[f"{name}: loop"] = simulate(job, devices).sha256()
            hashes[f"{name}: emulated"] = emulate(job, devices).sha256()
        except Exception as failed:  # noqa: BLE001 - the text of a failure is part of the snapshot
            hashes[name] = f"{type(failed).__name__}: {failed}"
    return hashes


def commands(group: Any, words: tuple[str, ...] = ()) -> dict[str, list[str]]:
    """Return the options and arguments of every command, with their defaults."""
    surface: dict[str, list[str]] = {}
    for name, command in getattr(group, "commands", {}).items():
        here = (*words, name)
        surface[" ".join(here)] = sorted(
            f"{'/'.join([*p.opts, *p.secondary_opts])} = {p.default!r}{' required' if p.required else ''}"
            for p in command.params
        )
        surface |= commands(command, here)
    return surface


def surface_of_commands() -> dict[str, list[str]]:
    """Return the options and arguments of all commands of `edgefl`."""
    return commands(typer.main.get_command(product))


def facts() -> dict[str, list[str]]:
    """Return the fields of every fact."""
    classes = [value for value in vars(events).values() if isinstance(value, type) and dataclasses.is_dataclass(value)]
    return {cls.__name__: [field.name for field in dataclasses.fields(cls)] for cls in classes}


def snapshot() -> dict[str, Any]:
    """Return all of it."""
    return {
        "commands": surface_of_commands(),
        "run file": RunFile.model_json_schema(),
        "agent file": AgentFile.model_json_schema(),
        "facts": facts(),
        "models": models(),
    }


def differences(before: Any, now: Any, where: str = "") -> list[str]:
    """Return a line for each value that is not what it was; descriptions of keys are words and may change."""
    if isinstance(before, dict) and isinstance(now, dict):
        keys = [*before, *(key for key in now if key not in before)]
        pairs = ((key, before.get(key), now.get(key)) for key in keys if key not in {"description", "title"})
        return [line for key, old, new in pairs for line in differences(old, new, f"{where} / {key}")]
    return [] if before == now else [f"{where}: {before} -> {now}"]


app = typer.Typer(add_completion=False)


@app.command()
def main(
    file: Annotated[Path | None, typer.Argument(help="Where to write the snapshot.")] = None,
    against: Annotated[Path | None, typer.Option(help="A snapshot from before, to compare with.")] = None,
) -> None:
    """Write what a restructuring must not change, or compare it with what was written before."""
    now = json.loads(json.dumps(snapshot(), default=str))
    if file:
        file.write_text(json.dumps(now, indent=1), encoding="utf-8")
    if against:
        lines = differences(json.loads(against.read_text(encoding="utf-8")), now)
        typer.echo("\n".join(lines) or "nothing has changed")
        raise typer.Exit(1 if lines else 0)


if __name__ == "__main__":
    run(app)
