"""What devices send besides their delta, for the stages that need it."""

from collections.abc import Iterator

from edgefl.base.errors import ConfigError
from edgefl.base.vector import Array
from edgefl.learn.contract import Draft


def gather(draft: Draft, key: str, stage: str) -> Iterator[tuple[str, Array]]:
    """One extra of every device, one after another in the order of the draft; refuses a device half without it."""
    for device, update in draft.updates.items():
        extra = update.extra
        if key not in extra:
            raise ConfigError(
                f"aggregation '{stage}' needs '{key}' from every device, and {device} sent none; "
                "use the algorithm it belongs to, or leave the stage out"
            )
        yield device, extra[key]
