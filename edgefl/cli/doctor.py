"""`edgefl doctor`: is everything here that a fleet needs?"""

import json as js
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgefl.cli.options import Json, Sets

if TYPE_CHECKING:  # the command imports it when it runs: --help is instant
    from edgefl.ops.doctor.finding import Finding

COLOURS = {"ok": typer.colors.GREEN, "warning": typer.colors.YELLOW, "wrong": typer.colors.RED}


def doctor(
    file: Annotated[
        Path | None, typer.Argument(help="A run file or an agent file: looks at what it needs too.", show_default=False)
    ] = None,
    set_: Sets = None,
    torch: Annotated[bool, typer.Option("--torch", help="PyTorch is needed here, whatever the file says.")] = False,
    json: Json = False,
) -> None:
    """Look at this machine and at the way to the broker; exit code 1 if something is wrong."""
    from coordinator.shell.fleet_broker import located
    from edgefl.base.errors import ConfigError
    from edgefl.fleet.folder import FleetFolder
    from edgefl.job.config.origin import kind_of
    from edgefl.job.config.reader import load, read_toml
    from edgefl.job.config.schema import RunFile
    from edgefl.ops.doctor.examine import examine

    if file is None and set_:
        raise ConfigError("--set overrides a key of a file: name the file too")
    configuration = load(kind_of(read_toml(file)), file, set_ or ()) if file else None
    if isinstance(configuration, RunFile) and FleetFolder(configuration.broker.fleet).exists():
        configuration = located(configuration)
    findings = []
    for finding in examine(configuration, torch=torch):
        findings.append(finding)
        typer.echo(js.dumps(asdict(finding)) if json else worded(finding))
    if not json:
        typer.echo(summary(findings))
    raise typer.Exit(1 if any(finding.level == "wrong" for finding in findings) else 0)


def summary(findings: "Sequence[Finding]") -> str:
    """Return the last line."""
    levels = [finding.level for finding in findings]
    bad, odd = levels.count("wrong"), levels.count("warning")
    return f"{len(levels)} looked at, {f'{odd} to know about, ' if odd else ''}{bad} wrong"


def worded(finding: "Finding") -> str:
    """Return one finding as a line."""
    level = typer.style(f"{finding.level:<8}", fg=COLOURS[finding.level])
    remedy = f": {finding.remedy}" if finding.remedy else ""
    return f"{level} {finding.what:<12} {finding.text}{remedy}"
