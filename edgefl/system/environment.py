"""Variables of the environment for as long as a block runs."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Set these variables until the block ends; what they were before comes back."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
