"""How Hypothesis draws: the same in every run of `make test`, and other examples at night (`make nightly`).

`EDGEFL_NIGHT=1` draws new examples. Hypothesis prints an example that fails with the line that replays it, and keeps
it in `.hypothesis` until it passes; write it into its test as an `@example`. Walks that begin with a seed take `seeds`:
a seed that fails at night is in the name or the message of its test, and `EDGEFL_NIGHT=2026-11-19` is that night again.
"""

import os
from datetime import date

from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase
from hypothesis.internal.conjecture import providers

NIGHT = "EDGEFL_NIGHT"
A_NIGHT = 10_000  # seeds


def set_up() -> None:
    """Choose the profile; call it before tests are imported, for their own settings begin with it."""
    anywhere = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}  # how fast a machine is says nothing
    settings.register_profile("the same every time", derandomize=True, **anywhere)
    # Where CI is set, Hypothesis itself switches random draws and the database off; the night needs both.
    kept = DirectoryBasedExampleDatabase(".hypothesis/examples")
    settings.register_profile("night", derandomize=False, database=kept, print_blob=True, **anywhere)
    if os.environ.get(NIGHT):
        os.environ[NIGHT] = _night().isoformat()  # for all worker processes, also behind midnight
        settings.load_profile("night")
        return
    settings.load_profile("the same every time")
    # It also draws constants of our modules, of those that are imported by then. No setting says otherwise.
    assert callable(providers.is_local_module_file)
    providers.is_local_module_file = lambda _: False


def seeds(number: int) -> range:
    """Return so many seeds: the first ones, and at night those of this night."""
    first = _night().toordinal() * A_NIGHT if os.environ.get(NIGHT) else 0
    return range(first, first + number)


def _night() -> date:
    told = os.environ[NIGHT]
    return date.today() if told == "1" else date.fromisoformat(told)
