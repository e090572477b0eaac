"""Child processes that never outlive us, however we end."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from edgefl.base.errors import ConfigError
from edgefl.system.portable import close_to_others

PR_SET_PDEATHSIG = 1
PATIENCE = 5.0  # seconds between asking a child to end and making it
# `python -m` would look into the current folder first: the user's, where a file may have the name of a package of ours.
MODULE = (
    "import sys; sys.path[:] = [path for path in sys.path if path]; "
    "import runpy; runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)


def python(module: str, *arguments: str) -> list[str]:
    """The command that runs a module in a fresh process, whatever lies in the current folder."""
    return [sys.executable, "-c", MODULE, module, *arguments]


class Child:
    """A running command; its output goes to a file, and the kernel ends it when we end."""

    def __init__(
        self,
        command: Sequence[str],
        output: Path,
        *,
        user: str | None = None,
        environment: Mapping[str, str] | None = None,
        home: Path | None = None,  # its current folder, if it is another than ours
    ) -> None:
        self.name = Path(command[0]).name
        self.output = output
        self.said_before = output.stat().st_size if output.exists() else 0  # bytes of an earlier process
        self.started = threading.Event()
        self.gone = threading.Event()
        self.process: subprocess.Popen[bytes] | None = None
        self.failure: OSError | None = None
        # The kernel watches the thread that starts a child, not the process: this one lives as long as the child.
        keeper = threading.Thread(
            target=self._keep, args=(list(command), user, environment, home), name=f"keep-{self.name}", daemon=True
        )
        keeper.start()
        self.started.wait()
        if self.failure is not None:
            raise ConfigError(f"cannot start {command[0]}: {self.failure.strerror}")

    def _keep(
        self, command: list[str], user: str | None, environment: Mapping[str, str] | None, home: Path | None
    ) -> None:
        try:
            with self.output.open("ab") as log:
                close_to_others(log.fileno())
                self.process = subprocess.Popen(  # noqa: S603  our own command
                    command,
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    env=None if environment is None else {**os.environ, **environment},
                    cwd=home,
                    user=user,
                    group=None if user is None else _group_of(user),
                    extra_groups=None if user is None else [],
                    preexec_fn=_die_with(os.getpid()),  # noqa: PLW1509  one system call, looked up beforehand
                    start_new_session=True,  # Ctrl-C is for us: we still have goodbyes to send through it
                )
        except OSError as failure:
            self.failure = failure
            return
        finally:
            self.started.set()
        self.process.wait()
        self.gone.set()

    @property
    def exit_code(self) -> int | None:
        """How it ended; None while it runs."""
        return self.process.returncode if self.process is not None and self.gone.is_set() else None

    def last_words(self, words: int = 40) -> str:
        """Return the end of what it printed."""
        text = self.output.read_bytes()[self.said_before :].decode(errors="replace")
        return " ".join(text.split()[-words:]) or "it said nothing"

    def ask_to_stop(self) -> None:
        """SIGTERM, without waiting."""
        if self.process is not None and not self.gone.is_set():
            self.process.terminate()

    def stop(self) -> None:
        """SIGTERM, and SIGKILL for one that does not listen."""
        if self.process is None or self.process.stdin is None:
            return
        for end in (self.process.terminate, self.process.kill):
            if not self.gone.is_set():
                end()
            if self.gone.wait(PATIENCE):
                break
        self.process.stdin.close()


def _group_of(user: str) -> int:
    import pwd  # noqa: PLC0415 - Windows has none

    return pwd.getpwnam(user).pw_gid


def _die_with(parent: int) -> Callable[[], None] | None:
    if not sys.platform.startswith("linux"):
        return None  # other systems have no such call; a killed parent leaves its children behind there
    prctl = ctypes.CDLL(None).prctl

    def in_child() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died in between
            os._exit(1)

    return in_child
