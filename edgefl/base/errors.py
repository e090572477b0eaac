"""Errors that say whose fault it is.

EdgeflError
├── ConfigError    the operator's: a file, a key, an option     exit code 2
│   └── CodeRefused  code that the operator did not name
├── RemoteError    the peer's: counted, refused, never fatal
│   └── WireError  bytes that cannot be read as a message
├── StoreError     the disk's                                   exit code 1
├── RunError       the run's: it could not finish               exit code 1
│   └── Diverged   a loss or a model is not finite
├── Finished       no fault: the run has ended before           exit code 3
└── Interrupted    no fault: stopped on request (Ctrl-C)        exit code 130

A message names the thing, the value that was seen and what to do about it. A bug of ours is none of these:
it is not caught, and it shows its traceback.

>>> import edgefl
>>> try:
...     edgefl.simulate("softmax", "digits", algorithm="fedprx", fleet=4)
... except edgefl.errors.ConfigError as error:
...     print(error)
edgefl.simulate: algorithm.name = 'fedprx' is not in the registry; did you mean 'fedprox'?
"""

from collections.abc import Iterable, Sequence

from edgefl.base.printable import printable

__all__ = [
    "ELSEWHERE",
    "IN_THE_LOG",
    "MODES",
    "OURS",
    "CodeRefused",
    "ConfigError",
    "Diverged",
    "EdgeflError",
    "Finished",
    "Interrupted",
    "RemoteError",
    "RunError",
    "StoreError",
    "WireError",
    "coded",
    "nearest",
]

# What a device tells of an error whose text may hold values of its data: only where and what it was.
IN_THE_LOG = "the device's own log says more"
OURS = ("edgefl", "device_agent", "coordinator", "gateway")


class EdgeflError(Exception):
    """The root; never raised itself. Its message is one line, whatever it quotes.

    A message stays on the machine where the error was raised, because it may quote values of its data. It travels as it
    is only if it is marked as `free_of_data`: constants, and names and numbers of the task or of the run file. `told`
    is such a text beside a message that is not. Without either, others are told a code (`coded`), which stands in the
    log of the device as well.
    """

    exit_code = 1
    kind = "error"

    def __init__(self, message: str, *, told: str = "", free_of_data: bool = False) -> None:
        super().__init__(printable(message))
        self._told = printable(message if free_of_data else told)

    @property
    def told(self) -> str:
        """What a device says of it to others."""
        return self._told or f"{coded(self)}: {IN_THE_LOG}"


class ConfigError(EdgeflError):
    """The operator's: a file, a key or an option is wrong."""

    exit_code = 2
    kind = "config"


class CodeRefused(ConfigError):  # noqa: N818 - what happened, as Interrupted
    """A file that is not the operator's own names code."""


class RemoteError(EdgeflError):
    """The peer's: `code` is what is counted and what the peer is told."""

    def __init__(self, code: str, message: str, *, told: str = "", free_of_data: bool = False) -> None:
        super().__init__(message, told=told, free_of_data=free_of_data)
        self.code = code

    @property
    def told(self) -> str:
        """What a device says of it to others: always with its code."""
        return f"{self.code}: {self._told or IN_THE_LOG}"


class WireError(RemoteError):
    """Bytes that cannot be read as a message; codes start with `wire.`."""


class StoreError(EdgeflError):
    """The disk's: a file cannot be written, or cannot be trusted."""

    kind = "store"


class RunError(EdgeflError):
    """The run's: it could not finish."""

    kind = "run"


class Diverged(RunError):  # noqa: N818 - what happened, as Interrupted
    """Learning failed: a loss or a model is not finite."""

    kind = "diverged"


class Finished(EdgeflError):  # noqa: N818 - it is not an error either
    """The run has ended before; it is not trained again by accident."""

    exit_code = 3


class Interrupted(EdgeflError):  # noqa: N818 - it is not an error
    """Stopped on request; the state on disk is consistent."""

    exit_code = 130


def coded(error: BaseException) -> str:
    """Return a short code for an error: its kind, and the module of edgefl where it was raised.

    The kind is `config`, `store`, `run` or `diverged`, a code of its own (`wire.shape`), or the name of the exception's
    class. So the code holds nothing of the message.
    """
    if isinstance(error, RemoteError):
        return error.code
    kind, place = error.kind if isinstance(error, EdgeflError) else type(error).__name__, ""
    trace = error.__traceback__
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__", ""))
        place = module if module.partition(".")[0] in OURS else place
        trace = trace.tb_next
    return f"{kind}.{place.removeprefix('edgefl.')}" if place else kind


# What other programs call the same things.
ELSEWHERE = {
    "learning_rate": "lr",
    "batch_size": "batch",
    "local_epochs": "epochs",
    "num_rounds": "rounds",
    "num_clients": "devices",
    "clients_per_round": "cohort",
    "min_clients": "quorum",
    "timeout": "deadline",
}
# Methods that are no algorithm here, because any algorithm can be played so.
MODES = {"fedbuff": "FedBuff is rounds.mode = 'buffered' with any of them"}


def nearest(word: str, known: Iterable[str], elsewhere: Sequence[str] = ()) -> str:
    """A hint for a misspelt word: the nearest known one, or all of them.

    What is called so `elsewhere` is a better guess than a word here that is only a little like it.
    """
    words = sorted(known)
    if "fedavg" in words and word.lower() in MODES:
        return MODES[word.lower()]
    theirs = {other: ours for other, ours in ELSEWHERE.items() if ours in words}
    names = {**theirs, **{ours: ours for ours in words}}
    from difflib import get_close_matches  # noqa: PLC0415 - only when something is wrong

    close = [names[name] for name in get_close_matches(word, names, n=1, cutoff=0.8 if elsewhere else 0.6)]
    guesses = [*close, *elsewhere]
    return f"did you mean '{guesses[0]}'?" if guesses else f"known: {', '.join(words)}"
