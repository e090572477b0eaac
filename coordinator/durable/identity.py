"""Who the coordinator of a fleet is: one private key, made at the first start and kept for all its runs.

It stands beside no run: runs come and go, and their devices know the coordinator by this key. The owner of the file can
make models that the fleet trains on, and speak to its devices, so no other user may read it.
"""

from pathlib import Path

from edgefl.fleet.folder import signing_key
from edgefl.job.config.schema import RunFile
from edgefl.wire import key_file
from edgefl.wire.address import parse
from edgefl.wire.signing import Signer

NAME = "identity.key"


def signer(run: RunFile) -> Signer:
    """The one who signs this run's models, and whatever is said to its devices."""
    return opened(path(run))


def check(run: RunFile) -> None:
    """Refuse a key that cannot be used before anything else is done; a run's own is made with its folder."""
    file = path(run)
    if file.exists() or not parse(run.broker.url).embedded:
        opened(file)


def path(run: RunFile) -> Path:
    """Where the key is: `broker.identity`, else one for each fleet in the operator's state folder.

    An embedded broker has a fleet of its own that ends with the run, so its key stays in the run's folder.
    """
    if run.broker.identity is not None:
        return run.broker.identity.expanduser()
    if parse(run.broker.url).embedded:
        return run.run.folder / run.run.name / NAME
    return signing_key(run.broker.fleet)


def devices_path(run: RunFile) -> Path:
    """Where the keys of this fleet's devices are: beside the coordinator's own."""
    return path(run).with_suffix(".devices")


def opened(file: Path) -> Signer:
    """The key of this file, which is made if there is none."""
    elsewhere = "set broker.identity to a file that can"
    return key_file.opened(file, "the coordinator's", elsewhere=elsewhere, lost="give agents the new one")
