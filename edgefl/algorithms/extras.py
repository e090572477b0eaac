"""What devices send besides their delta, for the stages that need it."""

from edgefl.contract import Draft
from edgefl.errors import ConfigError
from edgefl.vector import Array


def gather(draft: Draft, key: str, stage: str) -> dict[str, Array]:
    """One extra of every device, in the order of the draft; refuses a device half that does not send it."""
    for device, update in draft.updates.items():
        if key not in update.extra:
            raise ConfigError(
                f"aggregation '{stage}' needs '{key}' from every device, and {device} sent none; "
                "use the algorithm it belongs to, or leave the stage out"
            )
    return {device: update.extra[key] for device, update in draft.updates.items()}
