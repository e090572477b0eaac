"""Who this device is to its coordinators: a private key on its own disk, made at the first start."""

from edgefl.errors import ConfigError
from edgefl.protocol import key_file
from edgefl.protocol.signing import Signer
from edgefl.system.disk import Disk

NAME = "device.key"


def signer(disk: Disk) -> Signer:
    """The key that signs what this device says."""
    if disk.read(NAME) is None:
        disk.create(NAME, key_file.new_pem())
    found = key_file.read(disk.read(NAME) or b"")
    if found is None:
        raise ConfigError(
            f"the device's key {disk.where(NAME)} is not an Ed25519 key in PEM without a password: restore it, or"
            " delete it and let the coordinator forget this device"
        )
    return found
