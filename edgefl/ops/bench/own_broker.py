"""A broker that a bench starts for itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import psutil

from edgefl.wire import broker
from edgefl.wire.address import Address


@contextmanager
def started_broker(kind: Literal["auto", "mosquitto", "iotcore"]) -> Iterator[tuple[Address, int]]:
    """A broker of our own, and its process."""
    before = {child.pid for child in psutil.Process().children()}
    with broker.start(prefer=kind) as running:
        (served_by,) = {child.pid for child in psutil.Process().children()} - before
        yield running.address, served_by
