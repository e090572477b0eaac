"""Where the broker is: `mqtt://[user[:password]@]host[:port]`, `mqtts://…`, `unix:///path/of/socket`, or `embedded`."""

import ipaddress
import os
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from edgefl.errors import ConfigError, nearest
from edgefl.protocol import local_socket

PORTS = {"mqtt": 1883, "mqtts": 8883}
UNIX = "unix"
PASSWORD = "EDGEFL_MQTT_PASSWORD"  # noqa: S105  the name of the variable, not a secret


@dataclass(frozen=True, slots=True)
class Address:
    """A broker to connect to; as text it never shows the password."""

    scheme: str
    host: str = ""  # of a socket in the file system, its path
    port: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)

    @property
    def embedded(self) -> bool:
        return self.scheme == "embedded"

    @property
    def tls(self) -> bool:
        return self.scheme == "mqtts"

    @property
    def socket(self) -> Path | None:
        """The socket in the file system, where it is one."""
        return Path(self.host) if self.scheme == UNIX else None

    @property
    def local(self) -> bool:
        """Whether only this machine can listen in or speak first."""
        return self.embedded or self.scheme == UNIX or is_loopback(self.host)

    def __str__(self) -> str:
        if self.embedded:
            return "embedded"
        if self.socket:
            return f"{UNIX}://{quote(self.host)}"
        user = f"{quote(self.username, safe='')}@" if self.username else ""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{user}{host}:{self.port}"


def parse(url: str) -> Address:
    """The address an operator wrote; a password in the environment goes before one in the file."""
    if url == "embedded":
        return Address("embedded")
    if url.startswith(f"{UNIX}:"):
        return _socket(url)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as bad:  # it may quote the url, and the url may hold a password
        raise ConfigError(f"broker.url has no valid host or port: write mqtt://host:1883 ({_brief(bad)})") from None
    scheme = parts.scheme
    if "://" not in url or scheme not in PORTS:
        hint = nearest(scheme, PORTS) if "://" in url else "write mqtt://host:1883 or mqtts://host:8883, or 'embedded'"
        raise ConfigError(f"broker.url '{_hidden(url)}' is not the address of an MQTT broker: {hint}")
    if not parts.hostname:
        raise ConfigError(f"broker.url '{_hidden(url)}' names no host: write {scheme}://host:{PORTS[scheme]}")
    if port == 0 or parts.path.strip("/") or parts.query or parts.fragment:
        raise ConfigError(
            f"broker.url '{_hidden(url)}' must end after host and port: write {scheme}://host:{PORTS[scheme]}"
        )
    username = unquote(parts.username) if parts.username else None
    password = os.environ.get(PASSWORD) or (unquote(parts.password) if parts.password else None)
    return Address(scheme, parts.hostname, port or PORTS[scheme], username, password if username else None)


def _socket(url: str) -> Address:
    path = unquote(url.removeprefix(f"{UNIX}://"))
    if not path.startswith("/"):
        raise ConfigError(f"broker.url '{url}' names no socket: write unix:///path/of/the/socket")
    return Address(UNIX, path)


def is_loopback(host: str) -> bool:
    """Whether the host is this machine by its address; of names, `localhost` alone: what others mean may change."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def without_password(value: Any) -> Any:  # Any: whatever TOML can say
    """The same, but no address in it has a password: for everything that is shown, logged or kept."""
    match value:
        case dict():
            return {key: without_password(inner) for key, inner in value.items()}
        case list() | tuple():
            return [without_password(inner) for inner in value]
        case str() if "://" in value and "@" in value:
            head, _, host = value.rpartition("@")
            scheme, _, login = head.partition("://")
            return f"{scheme}://{login.partition(':')[0]}@{host}"
    return value


def has_password(value: Any) -> bool:
    """Whether an address in it has one."""
    match value:
        case dict():
            return any(has_password(inner) for inner in value.values())
        case list() | tuple():
            return any(has_password(inner) for inner in value)
    return isinstance(value, str) and without_password(value) != value


def on_the_command_line(option: str, value: Any) -> None:
    """Refuse a password where every user of the machine can read it."""
    if has_password(value):
        raise ConfigError(
            f"{option}: a password on the command line is seen by every user of this machine and stays in the shell's"
            f" history; leave it out of the address and put it into the environment as {PASSWORD}"
        )


def reachable(address: Address, timeout: float = 3.0) -> None:
    """Nothing, if something listens there; otherwise a ConfigError that says what is wrong."""
    try:
        if address.socket:
            local_socket.connect(address.socket).close()
        else:
            socket.create_connection((address.host, address.port), timeout).close()
    except (socket.gaierror, UnicodeError):  # a name like `a..b` is not even asked for
        raise ConfigError(
            f"broker {address} is not reachable (host name '{address.host}' is unknown): correct broker.url"
        ) from None
    except TimeoutError:
        why, remedy = f"no answer within {timeout:g} s", "check the network and firewall, or correct broker.url"
    except (ConnectionRefusedError, FileNotFoundError) as failed:
        why, remedy = (failed.strerror or "").lower(), "start it with `edgefl broker start`, or correct broker.url"
    except OSError as failed:
        why, remedy = (failed.strerror or str(failed)).lower(), "check the network, or correct broker.url"
    else:
        return
    raise ConfigError(f"broker {address} is not reachable ({why}): {remedy}")


def _hidden(url: str) -> str:
    """The url without what stands before the last @, where a password may be."""
    head, at, tail = url.rpartition("@")
    scheme, colon, _ = head.partition("://")
    return f"{scheme + colon if colon else ''}…@{tail}" if at else url


def _brief(bad: ValueError) -> str:
    text = str(bad)
    return "port out of range" if "range" in text else "port is not a number" if "ort" in text else "bad host"
