"""The accounts of a broker of one's own: a folder with one file for each, and the file is all that its owner needs.

Each is a list of environment variables, as a shell, systemd (`EnvironmentFile`) and Docker (`--env-file`) read them.
Passwords are made once and stay; what else is in a file is written anew whenever it has changed.
"""

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from edgefl.errors import ConfigError
from edgefl.protocol.acl import COORDINATOR
from edgefl.protocol.address import PASSWORD, Address
from edgefl.protocol.topics import check_name
from edgefl.system.store import make_private, write_atomically


def names(text: str) -> list[str]:
    """The devices of `pi-01,pi-02`."""
    devices = [check_name("--devices", name.strip()) for name in text.split(",")]
    if twice := sorted({name for name in devices if devices.count(name) > 1}):
        raise ConfigError(f"--devices names {', '.join(twice)} twice: each device has an account of its own")
    if COORDINATOR in devices:
        raise ConfigError(f"--devices {COORDINATOR}: that account is the coordinator's; give the device another name")
    return devices


def passwords(folder: Path, devices: Sequence[str]) -> dict[str, str]:
    """The password of everyone, the coordinator included: the one in its file, or a new one."""
    return {name: _kept(path(folder, name)) or secrets.token_urlsafe(18) for name in (COORDINATOR, *devices)}


def write(folder: Path, known: Mapping[str, str], broker: Address, key: str) -> None:
    """A file for each; devices are told the coordinator's key, and the coordinator where the broker is."""
    make_private(folder)
    for name, password in known.items():
        if name == COORDINATOR:
            about = {"EDGEFL_BROKER__URL": str(Address(broker.scheme, broker.host, broker.port, name))}
        else:
            about = {"EDGEFL_AGENT__ID": name, "EDGEFL_AGENT__COORDINATOR": key}
        text = "".join(f"{k}={v}\n" for k, v in {**about, PASSWORD: password}.items()).encode()
        file = path(folder, name)
        if not file.exists() or file.read_bytes() != text:
            write_atomically(file, text)


def path(folder: Path, name: str) -> Path:
    return folder / f"{name}.env"


def _kept(file: Path) -> str | None:
    if not file.exists():
        return None
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        variable, _, value = line.partition("=")
        if variable == PASSWORD and value:
            return value
    raise ConfigError(f"{file} holds no {PASSWORD}: delete it, and a new account is made in its place")
