"""`edgefl fleet claim|claims|accept|reject`: many devices become members with one word, accepted by a person."""

import json as js
from pathlib import Path
from typing import Annotated

import typer

from edgefl.cli.options import FleetName, Json
from edgefl.cli.program import program

Names = Annotated[
    list[str] | None, typer.Argument(help="Names, or ids, as `fleet claims` lists them.", show_default=False)
]


def claim(
    devices: Annotated[int, typer.Option(min=1, max=10_000, help="How many may become members with it.")] = 1,
    until: Annotated[str, typer.Option(help="Until when: 2027-01-31, or 7d, 2w from now.")] = "7d",
    serials: Annotated[
        Path | None,
        typer.Option(
            help="A CSV file of serial,name: these devices need no person to accept them.", show_default=False
        ),
    ] = None,
    withdraw: Annotated[
        str | None, typer.Option(help="End the claim of this id instead; who waits with it is sent away.")
    ] = None,
    fleet: FleetName = "default",
) -> None:
    """Print a word with which many devices ask to become members; each waits until a person accepts it."""
    from edgefl.fleet import claims
    from edgefl.fleet.administration import FleetAdministration
    from edgefl.fleet.authority import clock
    from edgefl.fleet.lifetimes import moment

    opened, now = FleetAdministration(fleet), clock()
    if withdraw is not None:
        claims.withdraw(opened, withdraw, now)
        typer.echo(f"the claim {withdraw} is withdrawn: no device becomes a member by it any more")
        return
    ends = moment(until, "--until", now)
    word = claims.issue(opened, devices, ends, now, claims.serials(serials) if serials else {})
    named = "" if fleet == "default" else f" --fleet {fleet}"
    typer.echo(f"on each of {devices} devices, until {ends:%Y-%m-%d %H:%M UTC}:\n")
    typer.echo(f"  edgefl agent enrol --claim {word.text()} --data npz:/path/to/data.npz\n")
    typer.echo(f"next, here, until all have come:  {program()} fleet listen{named}")
    typer.echo(f"then in another terminal:  {program()} fleet claims{named}")


def claims_(fleet: FleetName = "default", json: Json = False) -> None:
    """List claims, and the devices that wait for a person to accept them."""
    from edgefl.base.printable import printable
    from edgefl.fleet import claims
    from edgefl.fleet.administration import FleetAdministration
    from edgefl.fleet.authority import clock

    opened, now = FleetAdministration(fleet), clock()
    book, rows = claims.tidy(claims.read(opened), now), list(claims.waiting(opened, now))
    if json:
        for id, one in rows:
            typer.echo(js.dumps({"id": id, **one.model_dump(mode="json", exclude={"request", "membership", "claim"})}))
        return
    for key, claimed in book.claims.items():
        counts = {state: len(book.of(key, state)) for state in ("joined", "accepted", "waiting")}
        told = ", ".join(f"{count} {state}" for state, count in counts.items())
        typer.echo(
            f"claim {key[: claims.ID]}: {claimed.devices} devices until {claimed.until:%Y-%m-%d %H:%M UTC}; {told}"
        )
    if not book.claims:
        typer.echo("there is no claim")
    for id, one in rows:
        about = (
            f"serial {one.serial or '-'}  host {one.host or '-'}  from {one.address}  since {one.since:%m-%d %H:%M UTC}"
        )
        typer.echo(f"  {printable(one.name)}  id {id}  {about}")
    if rows:
        named = "" if fleet == "default" else f" --fleet {fleet}"
        typer.echo(f"next:  {program()} fleet accept {rows[0][1].name}{named}   (or --all, or fleet reject)")


def accept(
    names: Names = None,
    all_: Annotated[bool, typer.Option("--all", help="All that wait and whose names are free.")] = False,
    as_: Annotated[str | None, typer.Option("--as", help="Another name for the device.", show_default=False)] = None,
    fleet: FleetName = "default",
) -> None:
    """Let devices that wait become members, when they ask again."""
    from edgefl.base.errors import ConfigError
    from edgefl.fleet import claims
    from edgefl.fleet.administration import FleetAdministration
    from edgefl.fleet.authority import clock

    opened, now = FleetAdministration(fleet), clock()
    if bool(names) == all_ or (as_ and len(names or []) != 1):
        raise ConfigError("name the devices, or say --all; --as goes with one device")
    every = [id for id, _ in claims.waiting(opened, now)] if all_ else names or []

    def settled(which: str) -> bool:
        try:
            name = claims.settle(opened, which, "accepted", now, as_ or "")
        except ConfigError as error:
            if not all_:
                raise
            typer.echo(f"edgefl: {error}", err=True)
            return False
        typer.echo(f"'{name}' is accepted: it joins when it asks again, while `edgefl fleet listen` runs")
        return True

    raise typer.Exit(0 if all(list(map(settled, every))) else 1)


def reject(names: Names = None, fleet: FleetName = "default") -> None:
    """Send devices away that wait."""
    from edgefl.fleet import claims
    from edgefl.fleet.administration import FleetAdministration
    from edgefl.fleet.authority import clock

    opened = FleetAdministration(fleet)
    for which in names or []:
        typer.echo(f"'{claims.settle(opened, which, 'rejected', clock())}' is rejected")
