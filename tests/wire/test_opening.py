"""Who opens a transport gets the one of the address's scheme, under a client id of its own."""

import re
from typing import Any

import pytest

from edgefl.wire import opening
from edgefl.wire.address import PORTS, Address, parse
from edgefl.wire.opening import open_transport
from edgefl.wire.tls import Tls


class Opened:
    """The transport of a scheme that only this test knows."""

    def __init__(self, *given: Any) -> None:
        self.given = given


@pytest.fixture(autouse=True)
def another_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "OPENERS", {**opening.OPENERS, "pigeon": Opened})


def opened(*arguments: Any, **options: Any) -> Any:
    """Open a transport to the broker of that scheme; return what its opener was given."""
    return open_transport(Address("pigeon"), *arguments, **options).given  # type: ignore[attr-defined]


def test_the_scheme_of_an_address_chooses_the_transport() -> None:
    tls = Tls()
    assert opened("a", tls, suffix=False) == (Address("pigeon"), "a", tls)


def test_the_client_id_is_the_name_with_a_suffix_that_no_other_client_has() -> None:
    first, second = (opened("pi-01")[1] for _ in range(2))
    assert re.fullmatch(r"pi-01-[0-9a-f]{8}", first)
    assert first != second


@pytest.mark.parametrize("url", [*(f"{scheme}://host" for scheme in PORTS), "unix:///run/broker.socket"])
def test_every_address_that_a_file_may_name_can_be_opened(url: str) -> None:
    assert parse(url).scheme in opening.OPENERS
