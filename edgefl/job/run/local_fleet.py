"""A fleet of real agent processes on this machine, for demos and trials."""

from contextlib import AbstractContextManager
from pathlib import Path

from edgefl.base.errors import ConfigError
from edgefl.fleet.folder import signing_key
from edgefl.job.config import toml_text
from edgefl.job.config.schema import RunFile
from edgefl.job.run.job import device_names
from edgefl.system.portable import LINUX
from edgefl.system.processes import Child, python
from edgefl.system.store import make_private, write_atomically
from edgefl.wire.address import PASSWORD, parse, reachable


class LocalFleet(AbstractContextManager["LocalFleet"]):
    """Agents that run while the `with` block does."""

    def __init__(self, folder: Path, commands: dict[str, list[str]], password: str | None = None) -> None:
        self.folder, self.commands = folder, commands
        self.children: dict[str, Child] = {}
        make_private(folder)
        for name, command in commands.items():
            secret = None if password is None else {PASSWORD: password}  # neither in their files nor in their argv
            self.children[name] = Child(command, folder / f"{name}.log", environment=secret)

    @classmethod
    def of(
        cls,
        run: RunFile,
        broker: str,
        devices: int | None = None,
        root: Path | None = None,
        coordinator: str | None = None,
    ) -> "LocalFleet":
        """One agent for each part of the run's partition; `coordinator` is the key they trust."""
        held = run.task.partition
        if held is None or run.task.data is None:
            raise ConfigError("a fleet divides one data set among its agents: give task.data and task.partition")
        count = held.devices if devices is None else devices
        if not 1 <= count <= held.devices:
            raise ConfigError(f"--devices {count}: task.partition has {held.devices} parts; choose 1 to {held.devices}")
        address = parse(broker)
        if address.embedded:
            raise ConfigError(
                "broker.url = 'embedded' starts a broker that only its coordinator knows:"
                " run `edgefl broker start` and set broker.url = 'mqtt://localhost:1883' in the run file"
            )
        reachable(address)
        folder = agents_folder(run)
        make_private(folder)
        names = device_names(held.devices)[:count]
        me = {"broker": str(address), "fleet": run.broker.fleet, "folder": str(folder)}
        if coordinator is not None:
            me["coordinator"] = coordinator
        commands = {name: _command(run, {"id": name, **me}, folder, part, root) for part, name in enumerate(names)}
        return cls(folder, commands, address.password)

    def wait(self) -> dict[str, str]:
        """Wait for all of them to end; those that failed, and what they said last."""
        for child in self.children.values():
            child.gone.wait()
        return {name: child.last_words() for name, child in self.children.items() if child.exit_code}

    def stop(self) -> None:
        """Ask all of them to end."""
        for child in self.children.values():
            child.ask_to_stop()

    def __exit__(self, *_: object) -> None:
        self.stop()
        for child in self.children.values():
            child.stop()


def agents_folder(run: RunFile) -> Path:
    """Where they keep their files: beside the key of their coordinator, which knows each of them by its own.

    So the next run of the same fleet meets the same devices. The demo's live with the run, whose key is its own.
    """
    if parse(run.broker.url).embedded:
        return run.run.folder / run.run.name / "agents"
    return (run.broker.identity or signing_key(run.broker.fleet)).expanduser().with_suffix(".agents")


def trial_data(run: RunFile, part: int) -> dict[str, object]:
    """[data] of the agent that has this part of the run's data set."""
    task = run.task
    if task.partition is None or task.data is None:
        raise ConfigError("a fleet divides one data set among its agents: give task.data and task.partition")
    if not 0 <= part < task.partition.devices:
        raise ConfigError(f"task.partition has {task.partition.devices} parts, 0 to {task.partition.devices - 1}")
    return {
        "source": task.data,
        **run.data.model_dump(mode="json", exclude_defaults=True),
        "partition": task.partition.model_dump(mode="json", exclude_none=True),
        "part": part,
        "public": task.public,
        "seed": run.run.seed,
    }


def _command(run: RunFile, me: dict[str, str], folder: Path, part: int, root: Path | None) -> list[str]:
    """Write the agent's file, and say how to start it."""
    tables: dict[str, dict[str, object]] = {"agent": {**me}, "data": trial_data(run, part)}
    compute: dict[str, object] = {} if LINUX else {"box": False}  # the operator's own run, so it does without a box
    if named := run.code():
        compute["factories"] = named  # and its code may be run here
    if compute:
        tables["compute"] = compute
    path = folder / f"{me['id']}.toml"
    text = "\n".join(toml_text.table(title, table) for title, table in tables.items())
    write_atomically(path, text.encode())
    command = python("edgefl", "agent", "start", str(path), "--once", "--run", run.run.name)
    return command if root is None else [*command, "--data-root", str(root)]
