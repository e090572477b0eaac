"""`edgefl device`: ask a device how it is."""

import json as js
from typing import Annotated

import typer

from edgefl.cli.options import FleetName, Json


def device(  # noqa: PLR0917 - options of a command
    name: Annotated[str, typer.Argument(help="The name of the device.", show_default=False)],
    what: Annotated[
        str,
        typer.Argument(help="doctor, logs (the last lines of its agent's log) or vitals.", show_default=False),
    ],
    fleet: FleetName = "default",
    broker: Annotated[
        str | None,
        typer.Option(
            help="The broker of a fleet without identities.",
            show_default="mqtt://localhost:1883 of such a fleet",
        ),
    ] = None,
    timeout: Annotated[float, typer.Option(min=1, max=600, help="Seconds to wait for the answer.")] = 20.0,
    json: Json = False,
) -> None:
    """Ask a device how it is, if its agent file allows it; no answer holds values of its data.

    Exit code 1 if it is away, refuses or does not answer, or if its doctor finds something wrong.
    """
    import getpass
    import socket

    from edgefl.base.errors import ConfigError, nearest
    from edgefl.base.vitals import rows
    from edgefl.cli.doctor import summary, worded
    from edgefl.job.config.remote import QUESTIONS
    from edgefl.ops import diagnosis
    from edgefl.ops.doctor.finding import Finding
    from edgefl.wire.address import on_the_command_line

    on_the_command_line("--broker", broker)
    if what not in QUESTIONS:
        raise ConfigError(f"'{what}' is no question for a device; {nearest(what, QUESTIONS)}")
    way = diagnosis.line(fleet, broker)
    reply = diagnosis.ask(way, name, what, f"{getpass.getuser()} on {socket.gethostname()}", timeout)
    findings = [Finding(one.what, one.level, one.text, one.remedy) for one in reply.findings]
    if json:
        answer = {"refused": reply.refused} if reply.refused else _answer(what, reply.model_dump())
        typer.echo(js.dumps({"device": name, "what": what, **answer}))
    elif reply.refused:
        raise diagnosis.Unanswered(f"'{name}' refuses: {reply.refused}")
    elif what == "doctor":
        for finding in findings:
            typer.echo(worded(finding))
        typer.echo(summary(findings))
    elif what == "logs":
        for line in reply.lines:
            typer.echo(line)
    else:
        for title, value in rows(reply.vitals.model_dump() if reply.vitals else {}):
            typer.echo(f"{title:<20} {value}")
    bad = reply.refused or any(finding.level == "wrong" for finding in findings)
    raise typer.Exit(1 if bad else 0)


def _answer(what: str, reply: dict[str, object]) -> dict[str, object]:
    field = {"doctor": "findings", "logs": "lines", "vitals": "vitals"}[what]
    return {field: reply[field]}
