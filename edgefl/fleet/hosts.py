"""What this machine is called by others, as far as it knows."""

import socket
from contextlib import suppress
from ipaddress import ip_address


def ours() -> list[str]:
    """Names and addresses for a certificate; the first is the address that others on the network most likely reach."""
    name = socket.gethostname().split(".")[0]
    return list(dict.fromkeys([_outgoing(), name, f"{name}.local"]))


def may_change(host: str) -> bool:
    """Return whether a host is an address that others reach, so that only a name in its place could move."""
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return False


def _outgoing() -> str:
    """The address that this machine would speak from; nothing is sent to find it."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # an address that no machine has
        return str(probe.getsockname()[0])
    return "127.0.0.1"
