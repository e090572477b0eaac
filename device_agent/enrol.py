"""From a kit to a device that is installed: its keys and certificates in the agent's folder, and its agent file.

FOLDER/pi-01/agent.toml          what `edgefl agent start` reads
            /device.key          signs messages
            /tls.pem             who it is at the broker: key and certificate in one file, renewed as a whole
            /ca.crt              whom it believes to be the broker
"""

from pathlib import Path
from typing import Any

from device_agent.durable import identity
from edgefl.base.errors import ConfigError
from edgefl.fleet.folder import state_folder
from edgefl.fleet.kit import Kit
from edgefl.job.config import reader, toml_text
from edgefl.job.config.agent_file import AgentFile
from edgefl.learn.data.files import existing, is_file, is_pattern
from edgefl.system.store import make_private, write_atomically

NAME = "agent.toml"
CA, TLS = "ca.crt", "tls.pem"


def install(kit: Kit, folder: Path, data: str | None = None, beside: Path | None = None) -> Path:
    """Everything of the kit at its place; the agent file.

    Its data are `data`, else what stands in the file `beside`, or in an earlier agent file, or in the kit. The same kit
    once more changes no certificate: it may have been renewed meanwhile.
    """
    home = folder / kit.name
    path = home / NAME
    own = beside or (path if path.exists() else None)
    tables = {"agent": _agent(kit, folder), **_without_agent(own)}
    if data is not None:
        tables["data"] = {"source": data}
    if "data" in tables:
        tables["data"] = _from_anywhere(tables["data"], beside)
    else:
        if kit.data is None:
            raise ConfigError(
                f"the kit of '{kit.name}' names no data: give --data npz:/path/to/data.npz (or csv:..., or --with FILE)"
            )
        if _is_code(source := str(kit.data.get("source", ""))):
            raise ConfigError(
                f"the kit of '{kit.name}' names code of this device for its data, {source}: a kit may not choose that;"
                f" if you do, say --data {source} (or --with FILE)"
            )
        tables["data"] = kit.data
    reader.parse(AgentFile, tables, f"the kit of '{kit.name}'", environment={})
    make_private(home)
    if not _has(home / identity.NAME, kit.device_key):
        own_files = {CA: kit.ca, TLS: kit.key + kit.certificate, identity.NAME: kit.device_key}
        for name, text in own_files.items():
            write_atomically(home / name, text.encode())
    text = "\n".join(toml_text.table(title, table) for title, table in tables.items())
    write_atomically(path, text.encode())  # last: from now on it can be started
    return path


def missing_data(path: Path) -> str:
    """Why the files that an agent file names for its data cannot be read yet; empty: they are there."""
    source = str(reader.read_toml(path).get("data", {}).get("source", ""))
    try:
        if is_file(source) and not source.startswith("images:"):  # which is a folder
            existing(source)
    except ConfigError as error:
        return str(error)
    return ""


def only() -> Path:
    """The agent file of the one device that was enrolled here."""
    files = sorted(state_folder().glob(f"*/{NAME}"))
    if not files:
        raise ConfigError("no device was enrolled here: `edgefl agent enrol NAME.kit`, or name an agent file")
    if len(files) > 1:
        raise ConfigError(
            f"several devices were enrolled here, name one: edgefl agent start {' or '.join(map(str, files))}"
        )
    return files[0]


def _from_anywhere(data: dict[str, Any], beside: Path | None) -> dict[str, Any]:  # Any: whatever TOML can say
    """The same data, whichever folder the agent is started in: a path counts from here, or from the file `beside`."""
    source = str(data.get("source", ""))
    if not is_file(source):
        return data
    kind, _, path = source.partition(":")
    folders = [Path.cwd(), *([beside.absolute().parent] if beside else [])]
    places = [folder / path for folder in folders]  # a path that is absolute stays what it is
    place = next((one for one in places if one.exists() or (is_pattern(one) and one.parent.is_dir())), places[0])
    return {**data, "source": f"{kind}:{place}"}


def _is_code(source: str) -> bool:
    """Whether data of this name come from a function, `package.module:name`, that is imported and called."""
    return ":" in source and not is_file(source)


def _has(path: Path, text: str) -> bool:
    return path.exists() and path.read_bytes() == text.encode()


def _without_agent(path: Path | None) -> dict[str, Any]:  # Any: whatever TOML can say
    tables = reader.read_toml(path) if path else {}
    return {title: table for title, table in tables.items() if title != "agent"}


def _agent(kit: Kit, folder: Path) -> dict[str, Any]:  # Any: whatever TOML can say
    home = folder / kit.name
    return {
        "id": kit.name,
        "fleet": kit.fleet,
        "broker": [kit.broker, *kit.also] if kit.also else kit.broker,
        "coordinator": kit.coordinator,
        **({"site": kit.site} if kit.site else {}),
        **({"models": kit.models} if kit.models else {}),
        "folder": str(folder),
        "tls": {"ca": str(home / CA), "certificate": str(home / TLS), "key": str(home / TLS)},
    }
