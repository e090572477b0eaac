"""`edgefl tutorial`: the files that docs/tutorial.md begins with."""

from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from edgefl.cli.options import DataRoot

DEVICES = {"pi-01": (1, 3, 5), "pi-02": (6, 7, 8), "pi-03": (11, 14, 15)}  # and the people who carried it
CHECK = (2, 4, 9, 10, 12, 13)  # people whom no device has


def tutorial(
    folder: Annotated[Path, typer.Argument(help="Where to write them.")] = Path("tutorial"), data_root: DataRoot = None
) -> None:
    """Write the files of the tutorial: the logs of three devices, a log to check on, and the run file."""
    from edgefl.base.errors import ConfigError
    from edgefl.learn.data import activity_logs as logs
    from edgefl.learn.data.catalog import data_root as root_of

    if folder.exists():
        raise ConfigError(f"{folder} is already there; name another folder, or delete it")
    har = root_of(data_root) / "uci_har"
    real = (har / "uci_har.npz").is_file()

    def log(people: tuple[int, ...], lacks: tuple[int, ...] = ()) -> list[logs.Recording]:
        if real:
            return [one for person in people for one in logs.uci_har(har, person)]
        return [one for person in people for one in logs.made_up(person) if one.activity not in lacks]

    templates = files("edgefl.cli") / "templates"
    agent, run, alone = (
        (templates / f"tutorial_{name}.toml").read_text(encoding="utf-8") for name in ("agent", "run", "alone")
    )
    for number, (device, people) in enumerate(DEVICES.items()):
        home = folder / device
        home.mkdir(parents=True)
        (home / "agent.toml").write_text(agent, encoding="utf-8")
        with (home / "log.csv").open("w", encoding="utf-8") as file:
            logs.write(log(people, lacks=(number, number + 3)), file)
    with (folder / "check.csv").open("w", encoding="utf-8") as file:
        logs.write(log(CHECK), file)
    (folder / "run.toml").write_text(run, encoding="utf-8")
    (folder / "alone.toml").write_text(alone, encoding="utf-8")
    _alone(folder)
    whose = (
        "people of UCI HAR"
        if real
        else f"people who are made up (UCI HAR is not in {har.absolute()}), each without two of the six activities"
    )
    typer.echo(f"wrote {folder}: logs of {whose}, for {', '.join(DEVICES)}, and one of others to check on")
    typer.echo(f"next: cd {folder} && edgefl simulate alone.toml")


def _alone(folder: Path) -> None:
    """For each device a file with its windows to learn from and those of check.csv to be judged on."""
    import numpy as np

    from edgefl.job.config.reader import load
    from edgefl.job.config.schema import RunFile
    from edgefl.learn.data import catalog

    run = load(RunFile, folder / "run.toml", environment={})
    check = catalog.load(f"csv:{folder / 'check.csv'}", reading=run.data)
    names = check.test.class_names or ()
    (folder / "alone").mkdir()
    for device in DEVICES:
        own = catalog.load(f"csv:{folder / device / 'log.csv'}", reading=run.data)
        numbers = np.array([names.index(name) for name in own.train.class_names or ()])  # a log may lack some
        np.savez_compressed(
            folder / "alone" / f"{device}.npz",
            x_train=own.train.x,
            y_train=numbers[own.train.y],
            x_test=check.test.x,
            y_test=check.test.y,
            classes=len(names),
        )
