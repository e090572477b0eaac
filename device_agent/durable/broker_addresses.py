"""Where this device looks for its broker: addresses that its fleet told it, and behind them those of its agent file.

What a fleet tells counts for the broker's address alone: the authority that must vouch for the broker there, the
fleet and the coordinator's key stay as they were given to this device. An operator who writes another address into the
agent file has the last word: what was learned before is forgotten.
"""

import json
import logging
from collections.abc import Sequence

from edgefl.base.errors import ConfigError, StoreError, WireError
from edgefl.system.disk import Disk
from edgefl.system.json_text import parse_json
from edgefl.system.logs import TOLD
from edgefl.wire.address import Address, parse
from edgefl.wire.messages import Addresses

log = logging.getLogger(__name__)

NAME = "brokers.json"


class BrokerAddresses:
    """The addresses of one device; `__call__` may come from any thread."""

    def __init__(self, disk: Disk, given: Sequence[Address]) -> None:
        self._disk, self.given, self.number = disk, tuple(given), 0
        self._told: tuple[Address, ...] = ()
        self._read()

    def __call__(self) -> tuple[Address, ...]:
        return tuple(dict.fromkeys((*self._told, *self.given)))

    def known(self) -> int:
        """Return the number of the last addresses that were told."""
        return self.number

    def learn(self, message: Addresses) -> bool:
        """Try these addresses first from now on; return whether that is news. Refuse those without TLS."""
        try:
            addresses = tuple(parse(url) for url in message.brokers)
        except ConfigError as error:
            raise WireError("addresses.malformed", str(error)) from None
        if not all(one.tls and one.username is None for one in (*addresses, *self.given)):
            raise WireError("addresses.insecure", "a broker can only move from TLS to TLS, without a password")
        if message.number <= self.number:
            return False
        self.number, self._told = message.number, addresses
        log.info("the broker is reached by %s", ", ".join(map(str, addresses)), extra=TOLD)
        record = {"number": self.number, "brokers": message.brokers, "beside": [str(one) for one in self.given]}
        try:
            self._disk.write(NAME, json.dumps(record).encode())
        except StoreError as error:  # it holds for this life, and is told again in the next one
            log.warning("the broker's addresses are not written down: %s", error)
        return True

    def _read(self) -> None:
        raw = self._disk.read(NAME)
        if raw is None:
            return
        try:
            record = parse_json(raw)
            if record["beside"] != [str(one) for one in self.given]:
                return
            addresses = tuple(parse(url) for url in record["brokers"])
            if all(one.tls for one in addresses):
                self.number, self._told = int(record["number"]), addresses
        except (ConfigError, ValueError, KeyError, TypeError) as error:
            log.warning("%s cannot be read, the addresses of the agent file are used why=%s", NAME, error)
