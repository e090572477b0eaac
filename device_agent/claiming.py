"""A device that was given a claim asks until a person has decided: more and more rarely, and over restarts too."""

import time
from collections.abc import Callable
from pathlib import Path

from edgefl.base.errors import ConfigError, RemoteError
from edgefl.fleet.claiming import AwaitsPerson, ClaimAsking, host_name, serial_number
from edgefl.fleet.claims import ClaimWord
from edgefl.fleet.kit import Kit
from edgefl.wire.reconnect import backoff

FIRST, LONGEST = 5.0, 300.0  # seconds between two questions
NAME = "claim.json"


def name_of(given: str | None) -> str:
    """The name that this device asks for: the one given, or its host name and the end of its serial number."""
    if given is not None:
        return given
    host, serial = host_name() or "device", serial_number()
    return f"{host}-{serial[-6:]}" if serial else host


def wait(
    word: ClaimWord, name: str, folder: Path, tell: Callable[[str], None], sleep: Callable[[float], None] = time.sleep
) -> tuple[Kit, ClaimAsking]:
    """Return the kit of this device once it was accepted; ConfigError if it never will be."""
    asking, times, told = ClaimAsking(word, name, folder / NAME), 0, ""
    while True:
        try:
            answer = asking.ask()
        except RemoteError as error:
            raise ConfigError(f"the server does not let '{name}' in: {error}") from None
        except OSError as error:
            line = f"{error}; asked again"
        else:
            if not isinstance(answer, AwaitsPerson):
                return answer, asking
            line = f"'{name}' waits until a person accepts it: `edgefl fleet accept {answer.id}` on the server"
        if line != told:
            tell(line)
        told, times = line, times + 1
        sleep(backoff(name, times, FIRST, LONGEST))
