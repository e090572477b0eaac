"""Devices that are there and do nothing: `python -m tools.bench.presences FOLDER FIRST LAST`.

Each has a connection of its own to the fleet's broker, over TLS with its own certificate, and says once that it is
there, signed with its own key. Kits are read from the folder; it ends with its standard input.
"""

import sys
import time
from pathlib import Path

from edgefl.base.version import __version__
from edgefl.fleet import kit as kits
from edgefl.wire import key_file, topics
from edgefl.wire.address import parse
from edgefl.wire.messages import Presence
from edgefl.wire.opening import open_transport
from edgefl.wire.signed import Speaker, life_number
from edgefl.wire.tls import Tls
from edgefl.wire.transport import Transport


def name_of(number: int) -> str:
    """What the device of this number is called."""
    return f"pi-{number:04d}"


def announced(folder: Path, name: str) -> Transport:
    """Return the connection of a device that has said that it is there."""
    kit = kits.read(folder / f"{name}.kit")
    home = folder / name
    home.mkdir(mode=0o700)
    (home / "ca").write_text(kit.ca)
    (home / "tls").touch(mode=0o600)
    (home / "tls").write_text(kit.key + kit.certificate)
    (home / "device").touch(mode=0o600)
    (home / "device").write_text(kit.device_key)
    signer = key_file.opened(home / "device", "the device's", elsewhere="", lost="")
    speaker = Speaker(signer, kit.fleet, life_number(time.time()))
    tls = Tls(ca=home / "ca", certificate=home / "tls", key=home / "tls")
    transport = open_transport(parse(kit.broker), name, tls, suffix=False)
    transport.start(lambda _event: None)
    here = Presence(
        online=True, installation=f"bench{name}", birth=1, host=f"{name}.local", version=__version__, samples=400
    )
    sealed = speaker.seal("presence", here.model_dump_json().encode(), device=name)
    transport.publish(topics.presence(kit.fleet, name), sealed, retain=True)
    return transport


def main(folder: Path, first: int, last: int) -> None:
    """Be there until standard input ends."""
    transports = [announced(folder, name_of(number)) for number in range(first, last)]
    for transport in transports:
        if not transport.flush(120.0):
            sys.exit("the broker does not take what devices say")
    print("there", flush=True)
    sys.stdin.read()
    for transport in transports:
        transport.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
