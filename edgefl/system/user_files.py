"""What stands beside a run or agent file: the user's own modules (user_code.py imports them) and data files.

The folders are kept in the environment, so that every process that edgefl starts finds the same modules and files:
training for a simulation or a comparison, the rehearsal, the agents of a fleet.
"""

import importlib
import os
import sys
from pathlib import Path

FOLDERS = "EDGEFL_BESIDE"


def remember(file: Path) -> None:
    """From now on, what stands beside this file is found; it goes before what stands beside older ones."""
    folder = str(file.absolute().parent)
    others = [other for other in _remembered() if other != folder]
    os.environ[FOLDERS] = os.pathsep.join([folder, *others])


def folders() -> tuple[Path, ...]:
    """Where the user's own things are looked for, in this order; the current folder comes last."""
    return tuple(dict.fromkeys([*(Path(folder) for folder in _remembered()), Path.cwd()]))


def located(path: Path) -> Path:
    """A file that the user named: as it is if it is there, else beside the file that named it."""
    path = path.expanduser()
    if path.is_absolute() or path.exists():
        return path
    return next((folder / path for folder in folders() if (folder / path).exists()), path)


def reach() -> None:
    """Let Python look for modules beside the files too; only then, so that nothing else is found there by accident.

    The current folder comes after all installed packages, unless the operator's file is in it. Its modules may come
    from another person, and could take the place of packages that are imported later.
    """
    for folder in reversed(_remembered()):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)
    importlib.invalidate_caches()  # a file may be younger than the last look into its folder


def _remembered() -> list[str]:
    return [folder for folder in os.environ.get(FOLDERS, "").split(os.pathsep) if folder]
