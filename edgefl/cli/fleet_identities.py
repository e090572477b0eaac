"""`edgefl fleet settings|renew|host`: how long certificates last, who may renew late, and where the broker is."""

from typing import Annotated

import typer

from edgefl.cli.options import FleetName
from edgefl.cli.program import program, tell_the_broker

Lifetime = Annotated[
    str | None, typer.Option(help="How long certificates of devices last: 90d, 26w, 2y.", show_default=False)
]


def settings(
    device_certificates: Lifetime = None,
    grace: Annotated[
        str | None,
        typer.Option(
            help="How long after its certificate has ended a device may renew it by itself: 0d, 180d, 1y.",
            show_default=False,
        ),
    ] = None,
    fleet: FleetName = "default",
) -> None:
    """Show what holds for the whole fleet, or change it: for certificates that are made from now on."""
    from edgefl.fleet import lifetimes
    from edgefl.fleet.administration import FleetAdministration

    opened, about = FleetAdministration(fleet), dict[str, int]()
    if device_certificates is not None:
        about["device_certificate_days"] = lifetimes.days(device_certificates, "--device-certificates")
    if grace is not None:
        about["grace_days"] = lifetimes.days(grace, "--grace", least=0)
    now = opened.change(**about) if about else opened.settings
    typer.echo(f"devices look for the broker at {', '.join(map(str, now.brokers))}")
    typer.echo(f"its certificate is for {', '.join(now.hosts)}")
    lasts, late = lifetimes.shown(now.device_certificate_days), lifetimes.shown(now.grace_days)
    typer.echo(f"certificates of devices last {lasts}; a device renews its own by itself until {late} after its end")


def renew(
    names: Annotated[list[str], typer.Argument(help="The names of the devices.", show_default=False)],
    within: Annotated[str, typer.Option(help="How long they have for it: 1d to 10y.")] = "30d",
    fleet: FleetName = "default",
) -> None:
    """Let devices have a new certificate at their next contact, however long ago theirs ended."""
    from datetime import timedelta

    from edgefl.fleet import lifetimes
    from edgefl.fleet.administration import FleetAdministration
    from edgefl.fleet.authority import clock

    opened, now = FleetAdministration(fleet), clock()
    until = now + timedelta(days=lifetimes.days(within, "--within"))
    named = "" if fleet == "default" else f" --fleet {fleet}"
    for name in names:
        member = opened.permit(name, until, now)
        typer.echo(f"'{name}' may have a new certificate until {until:%Y-%m-%d %H:%M UTC}")
        ended = member.expires is None or member.expires <= now
        if ended and member.site:
            typer.echo(f"  but it is at site '{member.site}', where nothing renews what has ended: give it a new kit")
        elif ended:
            where = f"{opened.settings.broker.host}:{opened.settings.enrolment_port}"
            typer.echo(f"  its last one has ended: its agent asks at {where}, at least once an hour while it is on")
            typer.echo(f"  next, until it has come:  {program()} fleet listen{named}")
        else:
            typer.echo(
                f"  its last one is good until {member.expires:%Y-%m-%d}: a run asks it to renew when it is there"
            )


def host(
    name: Annotated[
        str | None, typer.Argument(help="The name or address that devices try first.", show_default=False)
    ] = None,
    also: Annotated[list[str] | None, typer.Option(help="A further one, tried after it.", show_default=False)] = None,
    drop: Annotated[
        list[str] | None, typer.Option(help="One that is no longer used, once all devices know the new.")
    ] = None,
    fleet: FleetName = "default",
) -> None:
    """Show where devices look for the broker, or move it: old and new addresses hold until the old one is dropped."""
    from edgefl.base.errors import ConfigError
    from edgefl.fleet import broker, moving
    from edgefl.fleet.administration import FleetAdministration
    from edgefl.fleet.authority import clock

    opened = FleetAdministration(fleet)
    if name is None and not drop:
        if also:
            raise ConfigError("--also goes with a name: edgefl fleet host NAME --also OTHER")
        typer.echo(f"devices look for the broker at {', '.join(map(str, opened.settings.brokers))}")
        return
    before = opened.settings.bind
    changed = moving.move(opened, [*([name] if name else []), *(also or [])], drop or (), clock())
    typer.echo(f"devices look for the broker at {', '.join(map(str, changed.brokers))}")
    typer.echo(f"its certificate is for {', '.join(changed.hosts)}")
    tell_the_broker(opened, reloaded=broker.reload(opened.folder))
    if changed.bind != before:
        where = f"{changed.bind} alone" if changed.bind else "all addresses of this machine"
        typer.echo(f"it listens on {where} from its next start on: restart `edgefl broker start`")
    if name:
        typer.echo("devices of before learn it while they are connected and a run is on; new kits have it already")
        old = [one for one in changed.addresses if one not in {name, *(also or [])}]
        named = "" if fleet == "default" else f" --fleet {fleet}"
        if old:
            typer.echo(f"when all have come by once:  {program()} fleet host --drop {old[0]}{named}")
