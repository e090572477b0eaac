"""Who this device is to its coordinators: a private key on its own disk, made at the first start."""

from edgefl.system.disk import Disk
from edgefl.wire import key_file
from edgefl.wire.signing import Signer

NAME = "device.key"


def signer(disk: Disk) -> Signer:
    """Return the key that signs what this device says; a user who can read it can act as this device."""
    if disk.read(NAME) is None:
        disk.create(NAME, key_file.new_pem())
    return _opened(disk)


def check(disk: Disk) -> None:
    """Refuse a key that cannot be used; to be asked before the folder is closed, which would hide who could read it."""
    if disk.read(NAME) is not None:
        _opened(disk)


def _opened(disk: Disk) -> Signer:
    lost = "let the coordinator forget this device"
    return key_file.checked(disk.read(NAME) or b"", disk.mode(NAME), disk.where(NAME), "the device's", lost=lost)
