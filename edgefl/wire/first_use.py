"""Trust on first use stays on loopback: across a network the first speaker would be believed for ever."""

from typing import NamedTuple

from edgefl.wire.address import Address

WHERE = "`edgefl coordinator key run.toml` prints it on the server, and the coordinator shows it when it starts"


class MissingKey(NamedTuple):
    """The key of the coordinator is not known where it must be."""

    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.what}: {self.remedy}"


def missing_key(broker: Address, key: str | None) -> MissingKey | None:
    """What an agent with this broker and this `agent.coordinator` lacks before it may connect; nothing, if it may."""
    if key or broker.local:
        return None
    return MissingKey(
        f"agent.coordinator is not set, so this device would trust the first coordinator that it meets at {broker}",
        f'write coordinator = "ed25519:..." under [agent] (or set EDGEFL_AGENT__COORDINATOR); {WHERE}',
    )
