"""Who the coordinator of a fleet is: one private key, made at the first start and kept for all its runs.

It stands beside no run: runs come and go, and their devices know the coordinator by this key. Whoever has the file can
make models that the fleet trains on, so nobody else may read it. It is PEM (PKCS #8), as
`openssl genpkey -algorithm ed25519` writes it.
"""

import logging
import os
from contextlib import suppress
from errno import EDQUOT, ENOSPC
from pathlib import Path
from tempfile import mkstemp

from edgefl.config import RunFile
from edgefl.errors import ConfigError, StoreError
from edgefl.faults import before_write
from edgefl.protocol.address import parse
from edgefl.protocol.signing import Signer
from edgefl.store import make_folder, sync_folder

log = logging.getLogger(__name__)

NAME = "identity.key"


def signer(run: RunFile) -> Signer:
    """The one who signs this run's models."""
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
    return of_fleet(run.broker.fleet)


def of_fleet(fleet: str) -> Path:
    """Where the key of a fleet is, unless its run files say otherwise."""
    return state_folder() / "fleets" / f"{fleet}.key"


def state_folder() -> Path:
    """Where what belongs to this operator, and to no run, is kept."""
    return Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "edgefl"


def opened(file: Path) -> Signer:
    """The key of this file, which is made if there is none."""
    try:
        if not file.exists():
            _make(file)
        mode, data = file.stat().st_mode & 0o777, file.read_bytes()
    except OSError as error:
        if error.errno in (ENOSPC, EDQUOT):  # nobody's mistake: there may be room for the next start
            raise StoreError(
                f"the coordinator's key {file} cannot be made ({error.strerror}); free some space"
            ) from None
        raise ConfigError(
            f"the coordinator's key {file} cannot be read or made ({error.strerror}): set broker.identity to a file"
            " that can, or correct its owner"
        ) from None
    if mode & 0o077:
        raise ConfigError(f"the coordinator's key {file} can be read by others (mode {mode:o}): chmod 600 {file}")
    return _read(file, data)


def _read(file: Path, data: bytes) -> Signer:
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - see edgefl.protocol.signing
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415

    try:
        key = load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):  # TypeError: it wants a password
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(
            f"the coordinator's key {file} is not an Ed25519 key in PEM without a password: restore it, or delete it"
            " and give agents the new one"
        )
    return Signer(key)


def _make(file: Path) -> None:
    """Write a new key, whole or not at all; of two who make one at the same time, the first one's stays."""
    from cryptography.hazmat.primitives import serialization as ways  # noqa: PLC0415 - see edgefl.protocol.signing
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

    pem = Ed25519PrivateKey.generate().private_bytes(ways.Encoding.PEM, ways.PrivateFormat.PKCS8, ways.NoEncryption())
    make_folder(file.parent)
    before_write()
    handle, fresh = mkstemp(dir=file.parent, prefix=f".{file.name}.")  # which nobody else can read
    try:
        with os.fdopen(handle, "wb") as written:
            written.write(pem)
            written.flush()
            os.fsync(handle)
        with suppress(FileExistsError):
            os.link(fresh, file)
            log.info("made the coordinator's key path=%s", file)
    finally:
        Path(fresh).unlink()
    sync_folder(file.parent)
