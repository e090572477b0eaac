"""`edgefl fleet`: who belongs to a fleet; and a trial fleet of many agents on this machine."""

import signal
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefl.cli import claims, fleet_identities
from edgefl.cli.options import DataRoot, FleetName, Json, Log, RunPath, Sets, Where
from edgefl.cli.program import program, shown, tell_the_broker

if TYPE_CHECKING:  # commands import when they run: --help is instant
    from edgefl.fleet.administration import FleetAdministration

app = typer.Typer(no_args_is_help=True, help="Who belongs to a fleet.")
for command in (fleet_identities.settings, fleet_identities.renew, fleet_identities.host, claims.claim):
    app.command()(command)
app.command("claims")(claims.claims_)
app.command()(claims.accept)
app.command()(claims.reject)

DeviceName = Annotated[str, typer.Argument(help="The name of the device.", show_default=False)]
Trial = Annotated[
    Path | None, typer.Option(help="A run file with task.partition: devices get its parts as their data.")
]
Out = Annotated[Path, typer.Option(help="The folder for the kits.")]


@app.callback()
def group() -> None:
    """Who belongs to a fleet."""


@app.command()
def init(  # noqa: PLR0917 - options of a command
    devices: Annotated[str | None, typer.Option(help="pi-01,pi-02,...: the first members.")] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(help="A name or address of the broker; devices connect to the first one.", show_default=False),
    ] = None,
    port: Annotated[
        int, typer.Option(help="The broker's port; the next is for coordinators here, the one after for tokens.")
    ] = 8883,
    trial: Trial = None,
    models: Annotated[
        str | None, typer.Option(help="Behind a gateway: the key of the coordinator whose models it passes on.")
    ] = None,
    device_certificates: Annotated[str, typer.Option(help="How long certificates of devices last: 90d, 2y.")] = "90d",
    fleet: FleetName = "default",
    out: Out = Path(),
) -> None:
    """Make a fleet: its authority, its broker's configuration and certificate, and a kit for each device."""
    from datetime import timedelta

    from edgefl.fleet import hosts, lifetimes
    from edgefl.fleet.administration import FleetAdministration, check_new
    from edgefl.fleet.authority import check_host, clock
    from edgefl.fleet.members import device_names

    if models is not None:
        _check_key(models)
    lasts = timedelta(days=lifetimes.days(device_certificates, "--device-certificates"))
    check_new(fleet)  # before the kits: those of a first `fleet init` are there too
    names = device_names(devices) if devices else []
    data = _parts(trial, range(len(names))) if trial else [None] * len(names)
    addresses = [check_host(one) for one in host] if host else hosts.ours()
    for name in names:
        _free(out, name)
    about = {"trial": str(trial.absolute()) if trial else None, "models": models}
    opened = FleetAdministration.new(fleet, addresses, port, clock(), **about, device_certificates=lasts)
    typer.echo(
        f"made the fleet '{fleet}' in {opened.folder.path}; keep a copy of that folder, and of {fleet}.key beside"
    )
    typer.echo(f"devices will look for the broker at {opened.settings.broker}; --host says another name or address")
    named = "" if fleet == "default" else f" --fleet {fleet}"
    if hosts.may_change(addresses[0]):
        typer.echo(
            f"an address is for good, a name can move: if {addresses[0]} may change,"
            f" `edgefl fleet host NAME{named}` gives a name, while the devices can still be reached"
        )
    for name, one in zip(names, data, strict=True):
        _kit(opened, name, one, out)
    typer.echo(f"\nnext, in a terminal of its own:  {program()} broker start{named}")


@app.command()
def add(  # noqa: PLR0917 - options of a command
    name: Annotated[str | None, typer.Argument(help="The name of the device.", show_default=False)] = None,
    data: Annotated[str | None, typer.Option(help="Its data.source: npz:/path, csv:/path, ...")] = None,
    trial: Trial = None,
    part: Annotated[int, typer.Option(help="With --trial: which part of the data it gets.")] = 0,
    replace: Annotated[
        bool, typer.Option("--replace", help="New keys for a member; the old ones are revoked.")
    ] = False,
    token: Annotated[
        bool, typer.Option("--token", help="No kit: a one-time token, with which the device makes its own keys.")
    ] = False,
    site: Annotated[str, typer.Option(help="Whose broker it is at; `edgefl fleet site` makes one.")] = "",
    minutes: Annotated[int, typer.Option(min=1, max=7 * 24 * 60, help="With --token: how long it is good for.")] = 60,
    count: Annotated[
        int | None, typer.Option(min=1, max=10_000, help="Many devices, with --prefix.", show_default=False)
    ] = None,
    prefix: Annotated[
        str | None, typer.Option(help="What the names of many begin with; numbers go on.", show_default=False)
    ] = None,
    fleet: FleetName = "default",
    out: Out = Path(),
) -> None:
    """Add a device: NAME.kit is all that it needs. With --count and --prefix, many of them."""
    from datetime import timedelta

    from edgefl.base.errors import ConfigError
    from edgefl.fleet import broker, tokens
    from edgefl.fleet.administration import FleetAdministration
    from edgefl.fleet.authority import clock

    if (count is None) != (prefix is None) or (name is None) == (count is None):
        raise ConfigError("name the device, or say --count and --prefix, and no name")
    if name is None and (token or trial or replace):
        raise ConfigError("--token, --trial and --replace are for one device that is named")
    if name is None:
        _many(FleetAdministration(fleet), prefix or "", count or 0, {"source": data} if data else None, out, site)
        return
    table = _parts(trial, [part])[0] if trial else {"source": data} if data else None
    opened = FleetAdministration(fleet)
    more = "" if table else " --data npz:/path/to/data.npz"
    if token:
        word = tokens.issue(
            opened, name, clock(), timedelta(minutes=minutes), replace=replace, data=table, site=site
        ).text()
        typer.echo(f"on {name}, within {minutes} minutes, once:\n\n  edgefl agent enrol --token {word}{more}\n")
        _listen(opened, only=name)
        return
    path = _kit(opened, name, table, out, replace=replace, site=site)
    tell_the_broker(opened, reloaded=broker.reload(opened.folder))
    typer.echo(f"\nnext, on {name}, with this file:  edgefl agent enrol {path.name}{more}")


@app.command()
def site(  # noqa: PLR0917 - options of a command
    name: Annotated[str, typer.Argument(help="The name of the site.", show_default=False)],
    host: Annotated[
        list[str], typer.Option(help="A name or address of the site's broker; its devices connect to the first one.")
    ],
    port: Annotated[int, typer.Option(help="The port of the site's broker.", min=1, max=65535)] = 8883,
    replace: Annotated[bool, typer.Option("--replace", help="New keys for a site; the old ones are revoked.")] = False,
    fleet: FleetName = "default",
    out: Out = Path(),
) -> None:
    """Add a site with a broker of its own, bridged to the fleet's: NAME.site is all that its server needs."""
    from edgefl.base.errors import ConfigError
    from edgefl.fleet import broker, sites
    from edgefl.fleet.administration import FleetAdministration
    from edgefl.fleet.authority import clock

    opened, path = FleetAdministration(fleet), out / f"{name}{sites.SUFFIX}"
    if path.exists() and not replace:
        raise ConfigError(f"{path} is there already: delete it if its server has it, or give --out FOLDER")
    sites.write(sites.add(opened, name, host, port, clock(), replace=replace), path)
    typer.echo(f"wrote {shown(path.absolute())}: it is for the site's server; delete it here once it is there")
    typer.echo(f"its bridge will look for the fleet's broker at {opened.settings.broker}")
    tell_the_broker(opened, reloaded=broker.reload(opened.folder))
    typer.echo(f"\nnext, there, with this file:  edgefl broker start --site {path.name}")
    typer.echo(f"and for each of its devices, here:  {program()} fleet add DEVICE --site {name}")


@app.command()
def listen(fleet: FleetName = "default") -> None:
    """Let devices in that come with a token, until Ctrl-C."""
    from edgefl.fleet.administration import FleetAdministration

    _listen(FleetAdministration(fleet), only=None)


@app.command()
def revoke(name: DeviceName, fleet: FleetName = "default") -> None:
    """Send a device away for good: an open connection of it ends too. Twice does no harm."""
    from edgefl.fleet import revocation
    from edgefl.fleet.administration import FleetAdministration

    opened = FleetAdministration(fleet)
    match revocation.revoke(opened, name):
        case "out":
            typer.echo(f"'{name}' is out: the broker refuses its certificate, and no connection of it is open")
        case "broker not running":
            typer.echo(f"'{name}' is revoked; the broker does not run at this moment, and will not let it in")
        case "still let in":
            typer.echo(f"edgefl: '{name}' is revoked, but the broker does not know it yet", err=True)
            tell_the_broker(opened, reloaded=False)
            typer.echo(f"then again:  {program()} fleet revoke {name}", err=True)
            raise typer.Exit(1)
    if site := opened.members.members[name].site:
        if revocation.told_at(opened, site):
            typer.echo(f"the broker of site '{site}' knows it: '{name}' has no rights there, and is not let in again")
            return
        typer.echo(
            f"edgefl: site '{site}' has not confirmed it yet; it gets the new list as soon as its bridge connects",
            err=True,
        )
        raise typer.Exit(1)


@app.command()
def label(
    devices: Annotated[str, typer.Argument(help="pi-03, or several: pi-03,pi-04.", show_default=False)],
    labels: Annotated[
        list[str] | None,
        typer.Argument(help="site=north camera=v2; camera= takes it away.", show_default=False),
    ] = None,
    fleet: FleetName = "default",
) -> None:
    """Give members labels, by which runs choose them (rounds.where); without any, show those they have."""
    from edgefl.base.device_labels import assigned
    from edgefl.fleet.administration import FleetAdministration
    from edgefl.fleet.authority import clock
    from edgefl.fleet.members import device_names

    opened, names = FleetAdministration(fleet), device_names(devices, "DEVICES")
    opened.label(names, assigned(labels or ()), clock())
    for name in names:
        words = " ".join(f"{key}={value}" for key, value in opened.members.members[name].labels.items())
        typer.echo(f"{name}: {words or 'no labels'}")


@app.command("list")
def list_(fleet: FleetName = "default", where: Where = None, json: Json = False) -> None:
    """Every device of the fleet, and all that were ever seen: when, in which runs, and what is wrong with each."""
    import json as js

    from edgefl.base.printable import printable
    from edgefl.fleet import expiring, inventory
    from edgefl.fleet.authority import clock
    from edgefl.fleet.folder import FleetFolder

    folder = FleetFolder(fleet)
    rows = inventory.known(folder)
    if where is not None:
        rows = inventory.matching(rows, where)
    if json:
        for row in rows:
            typer.echo(js.dumps(row.as_json()))
        return
    table: list[tuple[str, ...]] = [
        ("name", "key", "expires", "revoked", "seen", "version", "runs", "since", "what is wrong")
    ]
    for row in rows:
        key = f"{row.key.removeprefix('ed25519:')[:16]}..." if row.key else "no member"
        runs = f"{row.runs[-1]}{f' and {len(row.runs) - 1} more' if len(row.runs) > 1 else ''}" if row.runs else ""
        cells = row.name, key, _minute(row.expires), _minute(row.revoked), _minute(row.seen), row.version
        table.append(tuple(printable(cell) or "-" for cell in (*cells, runs, _minute(row.since), row.reason)))
    if any(row.labels for row in rows):
        words = (" ".join(f"{name}={value}" for name, value in row.labels.items()) for row in rows)
        labels = ["labels", *(printable(word) or "-" for word in words)]
        table = [(*line[:-1], word, line[-1]) for line, word in zip(table, labels, strict=True)]
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    for line in table:
        typer.echo("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())
    if folder.exists() and (due := expiring.line(folder, clock())):
        typer.echo(f"\n{due}")


@app.command()
def forget(name: DeviceName, fleet: FleetName = "default") -> None:
    """Take a device out of the list, with all that was seen of it; one that comes again is seen again."""
    from edgefl.base.errors import ConfigError
    from edgefl.fleet import last_seen, members
    from edgefl.fleet.folder import FleetFolder

    folder = FleetFolder(fleet)
    known = last_seen.forget(folder.seen, name)
    if folder.exists() and name in members.read(folder.members).active():
        typer.echo(f"'{name}' is still a member, and may come again:  {program()} fleet revoke {name}")
    elif not known:
        raise ConfigError(
            f"no device '{name}' was seen in fleet '{fleet}': `edgefl fleet list` shows the devices that were seen"
        )
    if known:
        typer.echo(f"forgot what was seen of '{name}'")


@app.command()
def start(  # noqa: PLR0917 - options of a command
    run: RunPath,
    devices: Annotated[int | None, typer.Option(help="How many; all parts of task.partition unless said.")] = None,
    broker: Annotated[str | None, typer.Option(help="Their broker; the run file's unless said.")] = None,
    set_: Sets = None,
    data_root: DataRoot = None,
    log: Log = "warning",
) -> None:
    """A trial on this machine: real agent processes, one for each part of the run's partition, until they end."""
    from coordinator.durable import identity
    from edgefl.job.config.reader import load
    from edgefl.job.config.schema import RunFile
    from edgefl.job.run.local_fleet import LocalFleet
    from edgefl.system import logs
    from edgefl.wire.address import on_the_command_line, parse

    logs.set_up(log)
    on_the_command_line("--broker", broker)
    run_file = load(RunFile, run, set_ or ())
    where, key = broker or run_file.broker.url, None
    if not parse(where).local and identity.path(run_file).exists():  # else each agent says what it lacks
        key = identity.signer(run_file).key
    fleet = LocalFleet.of(run_file, where, devices, data_root, key)
    signal.signal(signal.SIGTERM, lambda _s, _f: fleet.stop())
    with fleet:
        typer.echo(f"{len(fleet.children)} agents started; their logs are in {fleet.folder}")
        failed = fleet.wait()
    for name, last_words in failed.items():
        typer.echo(f"{name}: {last_words}", err=True)
    raise typer.Exit(1 if failed else 0)


def _listen(fleet: "FleetAdministration", only: str | None) -> None:
    """Serve until Ctrl-C, or until the token of `only` is used or has expired."""
    from edgefl.base.errors import ConfigError
    from edgefl.fleet import broker, enrolment, tokens
    from edgefl.fleet.authority import clock
    from edgefl.system import logs

    logs.set_up("warning")
    where = f"{fleet.settings.hosts[0]}:{fleet.settings.enrolment_port}"

    def joined(name: str) -> None:
        typer.echo(f"'{name}' has joined")
        tell_the_broker(fleet, reloaded=broker.reload(fleet.folder))

    def ended() -> bool:
        return only is not None and only not in tokens.pending(fleet, clock())

    def ready() -> None:
        who = f"'{only}'" if only else "devices with a token"
        typer.echo(f"waiting for {who} at {where}; Ctrl-C ends it")

    try:
        enrolment.serve(fleet, joined, ended, ready)
    except OSError as error:
        if only is None:
            raise ConfigError(f"{where} cannot be used ({error.strerror}): does `fleet listen` run already?") from None
        typer.echo(f"`{program()} fleet listen` or another program already serves {where}", err=True)


def _parts(trial: Path, parts: Any) -> list[dict[str, Any] | None]:  # Any: numbers, and whatever TOML can say
    from edgefl.job.config.reader import load
    from edgefl.job.config.schema import RunFile
    from edgefl.job.run.local_fleet import trial_data

    run = load(RunFile, trial)
    return [trial_data(run, part) for part in parts]


def _kit(
    fleet: "FleetAdministration",
    name: str,
    data: dict[str, Any] | None,
    out: Path,
    *,
    replace: bool = False,
    site: str = "",
) -> Path:
    from edgefl.fleet import kit
    from edgefl.fleet.authority import clock

    member = name in fleet.members.active()  # then `add` refuses, or replaces
    path = out / f"{name}{kit.SUFFIX}" if replace or member else _free(out, name)
    kit.write(fleet.add(name, clock(), replace=replace, data=data, site=site), path)
    typer.echo(
        f"wrote {shown(path.absolute())}: it belongs on {name} and nowhere else; delete it here once it is there"
    )
    return path


def _many(  # noqa: PLR0917 - what they share
    fleet: "FleetAdministration", prefix: str, count: int, data: dict[str, Any] | None, out: Path, site: str
) -> None:
    from edgefl.fleet import broker, kit, members
    from edgefl.fleet.authority import clock

    names = members.numbered(prefix, count, fleet.members.members)
    for name in names:
        _free(out, name)
    out.mkdir(parents=True, exist_ok=True)
    for name in names:
        kit.write(fleet.add(name, clock(), data=data, site=site), out / f"{name}{kit.SUFFIX}")
    typer.echo(f"wrote {count} kits to {out.absolute()}, {names[0]}{kit.SUFFIX} to {names[-1]}{kit.SUFFIX}")
    typer.echo("each belongs on its device and nowhere else; delete them here once they are there")
    tell_the_broker(fleet, reloaded=broker.reload(fleet.folder))
    more = "" if data else " --data npz:/path/to/data.npz"
    typer.echo(f"\nnext, on each device, with its file:  edgefl agent enrol {names[0]}{kit.SUFFIX}{more}")


def _free(out: Path, name: str) -> Path:
    from edgefl.base.errors import ConfigError
    from edgefl.fleet.kit import SUFFIX

    if (path := out / f"{name}{SUFFIX}").exists():
        raise ConfigError(
            f"{path} is there already: delete it if its device has it, move it away, or give --out FOLDER"
        )
    return path


def _check_key(key: str) -> None:
    from edgefl.base.errors import ConfigError
    from edgefl.wire.signing import key_bytes

    try:
        key_bytes(key)
    except ValueError as error:
        raise ConfigError(f"--models: {error}") from None


def _minute(moment: datetime | None) -> str:
    return f"{moment.astimezone():%Y-%m-%d %H:%M %Z}" if moment else ""
