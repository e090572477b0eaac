"""Where the broker is: `mqtt://[user[:password]@]host[:port]`, `mqtts://…`, `unix:///path/of/socket`, or `embedded`."""

import ipaddress
import os
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from edgefl.base.errors import ConfigError, nearest
from edgefl.wire import local_socket

PORTS = {"mqtt": 1883, "mqtts": 8883}
UNIX = "unix"
START = "start it with `edgefl broker start`"
KEY = "broker.url"  # of a run file; an agent file and a gateway's have other keys
NOT_RUNNING = "the broker of this machine's fleet is not running"
PASSWORD = "EDGEFL_MQTT_PASSWORD"  # noqa: S105  the name of the variable, not a secret


class BrokerAway(ConfigError):  # noqa: N818 - what is the matter, as Interrupted
    """Nothing answers at the broker's address, which may be right: it may come later."""


@dataclass(frozen=True, slots=True)
class Address:
    """A broker to connect to; as text it never shows the password."""

    scheme: str
    host: str = ""  # of a socket in the file system, its path
    port: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    key: str = field(default=KEY, repr=False, compare=False)  # of the file that it stands in

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


def parse(url: str, key: str = KEY) -> Address:
    """The address that stands under this key of a file; a password in the environment goes before one in the file."""
    if url == "embedded":
        return Address("embedded", key=key)
    if url.startswith(f"{UNIX}:"):
        return _socket(url, key)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as bad:  # it may quote the url, and the url may hold a password
        raise ConfigError(f"{key} has no valid host or port: write mqtt://host:1883 ({_brief(bad)})") from None
    scheme = parts.scheme
    if "://" not in url or scheme not in PORTS:
        hint = nearest(scheme, PORTS) if "://" in url else "write mqtt://host:1883 or mqtts://host:8883, or 'embedded'"
        raise ConfigError(f"{key} '{_hidden(url)}' is not the address of an MQTT broker: {hint}")
    if not parts.hostname:
        raise ConfigError(f"{key} '{_hidden(url)}' names no host: write {scheme}://host:{PORTS[scheme]}")
    if port == 0 or parts.path.strip("/") or parts.query or parts.fragment:
        raise ConfigError(f"{key} '{_hidden(url)}' must end after host and port: write {scheme}://host:{PORTS[scheme]}")
    username = unquote(parts.username) if parts.username else None
    password = os.environ.get(PASSWORD) or (unquote(parts.password) if parts.password else None)
    return Address(scheme, parts.hostname, port or PORTS[scheme], username, password if username else None, key)


def _socket(url: str, key: str) -> Address:
    path = unquote(url.removeprefix(f"{UNIX}://"))
    if not path.startswith("/"):
        raise ConfigError(f"{key} '{url}' names no socket: write unix:///path/of/the/socket")
    return Address(UNIX, path, key=key)


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
    """Return if something listens there; otherwise raise a ConfigError, `BrokerAway` if it may come later."""
    try:
        if address.socket:
            local_socket.connect(address.socket).close()
        else:
            socket.create_connection((address.host, address.port), timeout).close()
    except UnicodeError:  # a name like `a..b` is not even asked for
        raise ConfigError(
            f"{_unreachable(address)} (host name '{address.host}' is unknown): correct {address.key}"
        ) from None
    except PermissionError as failed:
        raise ConfigError(f"{_unreachable(address)} ({_reason(failed)}): correct {address.key}") from None
    except OSError as failed:
        why, remedy = _why_away(address, failed, timeout)
        raise BrokerAway(f"{_unreachable(address)} ({why}): {remedy}") from None


def _unreachable(address: Address) -> str:
    return f"broker {address} is not reachable"


def _why_away(address: Address, failed: OSError, timeout: float) -> tuple[str, str]:
    """Return why nothing answers, and what to do about it."""
    correct = f"correct {address.key}"
    match failed:
        case socket.gaierror():
            return f"host name '{address.host}' is unknown", correct
        case TimeoutError():
            return f"no answer within {timeout:g} s", f"check the network and firewall, or {correct}"
        case ConnectionRefusedError() | FileNotFoundError() if address.socket:
            return NOT_RUNNING, f"{START}, or {correct}"
        case ConnectionRefusedError():
            return _reason(failed), f"{START}, or {correct}"
    return _reason(failed), f"check the network, or {correct}"


def _reason(failed: OSError) -> str:
    return (failed.strerror or str(failed)).lower()


def _hidden(url: str) -> str:
    """The url without what stands before the last @, where a password may be."""
    head, at, tail = url.rpartition("@")
    scheme, colon, _ = head.partition("://")
    return f"{scheme + colon if colon else ''}…@{tail}" if at else url


def _brief(bad: ValueError) -> str:
    text = str(bad)
    return "port out of range" if "range" in text else "port is not a number" if "ort" in text else "bad host"
