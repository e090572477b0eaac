"""Where a run's broker is when its file does not say: that of the fleet on this machine, with the fleet's certificates.

So `edgefl coordinator start run.toml` needs nothing but the run file where `edgefl fleet init` has been.
"""

from edgefl.base.errors import ConfigError
from edgefl.fleet.folder import FleetFolder
from edgefl.job.config.schema import RunFile
from edgefl.wire.address import parse


def located(run: RunFile) -> RunFile:
    """The run at its broker; what the file, the environment or `--set` say goes first."""
    folder = FleetFolder(run.broker.fleet)
    if "url" in run.broker.model_fields_set:
        return _with_certificates(run, folder) if folder.exists() else run
    if not folder.exists():
        raise ConfigError(
            f"the run names no broker, and there is no fleet '{folder.name}' here: `edgefl fleet init --devices"
            " pi-01,pi-02` makes one; for a trial on this machine, `edgefl broker start` and broker.url ="
            " 'mqtt://localhost:1883'"
        )
    about = {"url": str(folder.here)}
    return run.model_copy(update={"broker": run.broker.model_copy(update=about)})


def _with_certificates(run: RunFile, folder: FleetFolder) -> RunFile:
    """An address that is the fleet's broker too needs the fleet's certificates, unless the file names others."""
    address = parse(run.broker.url)
    ours = {*folder.read_settings().hosts, "localhost", "127.0.0.1"}
    if not address.tls or address.host not in ours or "tls" in run.broker.model_fields_set:
        return run
    return run.model_copy(update={"broker": run.broker.model_copy(update={"tls": folder.coordinator_tls()})})


def fleet_of(run: RunFile) -> FleetFolder | None:
    """The fleet that this run belongs to, if it has identities; an embedded broker has a fleet of its own."""
    folder = FleetFolder(run.broker.fleet)
    return folder if folder.exists() and not parse(run.broker.url).embedded else None
