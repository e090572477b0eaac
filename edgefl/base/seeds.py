"""Every random stream is named, so results never depend on arrival order or on who drew first."""

from collections.abc import Iterable
from hashlib import sha256

import numpy as np


def stream(seed: int, *names: int | str) -> np.random.Generator:
    """The random stream of this name under this seed, e.g. `stream(7, 3, "pi-04")` for round 3 of pi-04."""
    # Plain types first: numpy's integers and strings print differently from version to version.
    plain = (str(name) if isinstance(name, str) else int(name) for name in names)
    path = "/".join([str(seed), *(repr(name) for name in plain)])
    return np.random.Generator(np.random.PCG64(int.from_bytes(sha256(path.encode()).digest()[:16], "big")))


def sample(seed: int, round: int, candidates: Iterable[str], size: int) -> tuple[str, ...]:
    """Whom a round asks: `size` of the candidates, in the order they were drawn.

    A larger sample of the same round begins with the smaller one, so over-selection only appends.
    """
    pool = sorted(candidates)
    order = stream(seed, round, "cohort").permutation(len(pool))
    return tuple(pool[i] for i in order[:size])
