"""A script that starts processes has to say where it is the main program: each process imports it once more.

A process that is still importing the script, and comes to the call that started it, ends with `UNGUARDED`. Its parent
says what is missing.
"""

import sys
from multiprocessing import current_process, get_context

from edgefl.base.errors import ConfigError

UNGUARDED = 75  # the exit code


def leave_if_unguarded() -> None:
    """End this process if it was started by a script that it is still importing."""
    if getattr(current_process(), "_inheriting", False):  # by this multiprocessing itself knows it
        raise SystemExit(UNGUARDED)


def check(what: str) -> None:
    """Raise `ConfigError` if the script has no guard, before `what` starts processes that are given much.

    A process that ends before it has read what it is given would block us: one that is given nothing is tried first.
    """
    leave_if_unguarded()
    if getattr(sys.modules["__main__"], "__file__", None) is None:  # a notebook: there is no script to import
        return
    process = get_context("spawn").Process(target=_nothing, daemon=True)
    process.start()
    process.join()
    if process.exitcode == UNGUARDED:
        raise missing(what)


def missing(what: str) -> ConfigError:
    """Return the error of a script without a guard, in which `what` started processes."""
    return ConfigError(
        f"{what} starts processes, and each imports your script once more: put the call below"
        ' `if __name__ == "__main__":`'
    )


def _nothing() -> None:
    """Do nothing: the process has begun."""
