"""A broker of one's own: Mosquitto if it is installed, otherwise rumqttd from the `iotcore` wheel.

Either is a child process with a generated configuration. It dies with us, even when we are killed; it forgets
everything when it stops, and nothing relies on it to remember. It is for a bench: without users it is open to all, and
with one user for all each client can read and forge what others send. So it stays on loopback, unless that is meant;
the broker of a real fleet is `edgefl/fleet/broker.py`.
"""

import base64
import hashlib
import importlib.util
import json
import os
import secrets
import shutil
import socket
import stat
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edgefl.base.errors import ConfigError, RunError
from edgefl.system.processes import Child
from edgefl.system.scratch import Scratch
from edgefl.wire import local_socket
from edgefl.wire.address import Address, is_loopback
from edgefl.wire.mosquitto_program import PASSWORD_PLUGIN, find_mosquitto, installed
from edgefl.wire.transport import LARGEST

Kind = Literal["mosquitto", "iotcore"]
PATIENCE = 10.0  # seconds until a broker must accept connections
NOBODY = "nobody"  # who runs mosquitto when root starts it
# What Mosquitto frees it keeps for the next messages, up to 64 MB: what ten devices are sent of a model of 4 MB. The C
# library would give it back to the kernel, which clears each page before it hands it out again: that was a quarter of
# the broker's time with such models, and still was with 32 MB.
HEAP = {"MALLOC_TRIM_THRESHOLD_": str(64 << 20), "MALLOC_MMAP_THRESHOLD_": str(8 << 20)}
SCRATCH = "edgefl-broker-"  # how folders of running brokers begin


class Broker(AbstractContextManager["Broker"]):
    """A running broker; leaving the `with` block stops it."""

    def __init__(self, kind: Kind, address: Address, stop: Callable[[], None]) -> None:
        self.kind = kind
        self.address = address
        self._stop = stop

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop it and free its port; twice does no harm."""
        self._stop()


def start(
    port: int = 0,
    *,
    bind: str = "127.0.0.1",
    directory: Path | None = None,
    prefer: Literal["auto", "mosquitto", "iotcore"] = "auto",
    users: Mapping[str, str] | None = None,
    insecure: bool = False,
) -> Broker:
    """A broker that accepts connections; port 0 means any free one, `users` are names and passwords."""
    if not is_loopback(bind) and not insecure:
        kind_of = "one user for all is for a bench and" if users else "an open broker"
        raise ConfigError(
            f"broker bind {bind}: {kind_of} stays on 127.0.0.1; `edgefl fleet init --devices pi-01,pi-02` makes a"
            " secured fleet, --insecure starts all the same"
        )
    kind = _choose(prefer)
    port = free_port(bind, port)
    address = Address("mqtt", "127.0.0.1" if bind == "0.0.0.0" else bind, port)  # noqa: S104  only compared
    with ExitStack() as undoing:
        if directory is None:
            home = undoing.enter_context(Scratch(SCRATCH)).path
        else:
            home = directory
            home.mkdir(parents=True, exist_ok=True)
        # As root the broker becomes the user `nobody`; only in a folder of our own may files change hands.
        nobody = os.geteuid() == 0 and directory is None and all(p.stat().st_mode & stat.S_IXOTH for p in home.parents)
        plan = _Plan(home, bind, port, users or {}, NOBODY if nobody else None)
        child = _mosquitto(plan) if kind == "mosquitto" else _iotcore(plan)
        undoing.callback(child.stop)
        wait_until_up(child, address)
        return Broker(kind, address, undoing.pop_all().close)


def has_iotcore() -> bool:
    return importlib.util.find_spec("iotcore") is not None


def _choose(prefer: str) -> Kind:
    if prefer in ("auto", "mosquitto") and find_mosquitto():
        return "mosquitto"
    if prefer in ("auto", "iotcore") and has_iotcore():
        return "iotcore"
    remedies = {
        "mosquitto": "install mosquitto (apt install mosquitto)",
        "iotcore": "pip install 'edgefl[broker]'",
    }
    remedy = " or ".join(remedies.values()) if prefer == "auto" else remedies[prefer]
    raise ConfigError(f"no {'MQTT broker' if prefer == 'auto' else prefer} on this machine: {remedy}")


ANOTHER_PORT = "choose another with --port, or connect to the broker that has it"


def free_port(bind: str, port: int, remedy: str = ANOTHER_PORT) -> int:
    """The port, if it can be had; otherwise a ConfigError."""
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((bind, port))
        except OSError as failed:
            why = (failed.strerror or str(failed)).lower()
            raise ConfigError(f"broker port {port} on {bind} cannot be used ({why}): {remedy}") from None
        free: int = probe.getsockname()[1]
        return free


@dataclass(frozen=True, slots=True)
class _Plan:
    """What both brokers are told; `user` is whom to become, if not who we are."""

    home: Path
    bind: str
    port: int
    users: Mapping[str, str]
    user: str | None


def _mosquitto(plan: _Plan) -> Child:
    lines = [
        f"listener {plan.port} {plan.bind}",
        f"allow_anonymous {'false' if plan.users else 'true'}",
        "persistence false",
        "set_tcp_nodelay true",
        f"max_packet_size {LARGEST}",
        "max_inflight_messages 20",
        "max_queued_messages 10000",
        "log_dest stderr",
        "log_type error",
        "log_type warning",
    ]
    files = [plan.home / "mosquitto.conf"]
    if plan.users:
        hashes = "".join(f"{user}:{_hashed(password)}\n" for user, password in plan.users.items())
        files.append(_private(plan.home / "passwords", hashes))
        lines += _password_file(files[-1])
    if os.geteuid() == 0:
        lines.append("user root")  # stay who you are: a change of user now would undo the kernel's watch
    files[0].write_text("\n".join(lines) + "\n", encoding="utf-8")
    if plan.user is not None:
        plan.home.chmod(
            0o711
        )  # it stays ours: in a folder of the user `nobody`, links would lead our writing elsewhere
        for path in files:
            shutil.chown(path, plan.user)
    command = [find_mosquitto() or "mosquitto", "-c", str(files[0])]
    return Child(command, plan.home / "mosquitto.log", user=plan.user, environment=HEAP)


def _password_file(path: Path) -> list[str]:
    """Return the lines that let the installed Mosquitto read this file."""
    program = installed()
    plugin = program.plugin(PASSWORD_PLUGIN) if program else None
    if plugin is None:
        return [f"password_file {path}"]
    return [f"global_plugin {plugin}", f"plugin_opt_password_file {path}"]


def _private(path: Path, text: str) -> Path:
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")  # both brokers read that, whatever the locale is
    return path


def _iotcore(plan: _Plan) -> Child:
    host = "127.0.0.1" if plan.bind == "localhost" else f"[{plan.bind}]" if ":" in plan.bind else plan.bind
    text = f"""\
id = 0
[router]
id = 0
max_connections = 10000
max_outgoing_packet_count = 200
max_segment_size = {16 * LARGEST}
max_segment_count = 8
[v5.1]
name = "v5"
listen = "{host}:{plan.port}"
next_connection_delay_ms = 1
[v5.1.connections]
connection_timeout_ms = 60000
max_payload_size = {2 * LARGEST}
max_inflight_count = 100
dynamic_filters = true
"""
    if plan.users:
        text += "[v5.1.connections.auth]\n" + "".join(f"{_quoted(u)} = {_quoted(p)}\n" for u, p in plan.users.items())
    config = _private(plan.home / "rumqttd.toml", text)
    # Its own entry point for child processes: it ends when the other end of its standard input closes.
    code = "import sys; sys.path[:] = [p for p in sys.path if p]; from iotcore._serve import main; main()"
    options = json.dumps({"config_path": str(config)})
    return Child([sys.executable, "-c", code, options], plan.home / "rumqttd.log")


def wait_until_up(child: Child, address: Address) -> None:
    """Return once it accepts connections; raise a RunError with what it said last if it does not."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        with suppress(OSError):
            if address.socket:
                local_socket.connect(address.socket).close()
            else:
                socket.create_connection((address.host, address.port), 1.0).close()
            return
        if child.gone.wait(0.01):
            break
    child.stop()
    raise RunError(f"{child.name} did not start on {address}: {child.last_words()}")


def _hashed(password: str) -> str:
    """The password as Mosquitto's password file wants it: salted PBKDF2."""
    salt, rounds = secrets.token_bytes(12), 20_000
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, rounds)
    return f"$7${rounds}${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"


def _quoted(text: str) -> str:
    """A string for TOML, which writes them as JSON does."""
    return json.dumps(text, ensure_ascii=False)
