"""Which presences are news, and which are old ones that come again."""

from typing import Any

import pytest

from coordinator.shell.authentication import DeviceAuthentication
from coordinator.shell.device_keys import DeviceKeys
from edgefl.wire.messages import Presence
from edgefl.wire.signed import Speaker, Unproven
from edgefl.wire.signing import Signer

FLEET, NAME = "f", "pi"


class Device:
    """Says things to a coordinator, which may hear them more than once."""

    def __init__(self) -> None:
        self.speaker, self.proofs = Speaker(Signer.new(), FLEET, 1), DeviceAuthentication(FLEET, "job", DeviceKeys())

    def says(self, *, online: bool, **more: Any) -> tuple[Presence, bytes]:
        presence = Presence(online=online, installation=NAME, birth=1, **more)
        return presence, self.speaker.seal("presence", presence.model_dump_json().encode(), device=NAME)

    def is_news(self, presence: Presence, message: bytes) -> bool | None:
        news = self.proofs.is_news(NAME, self.proofs.of_presence(NAME, message), presence)
        if news:
            self.proofs.meet(NAME)
        return news


@pytest.mark.parametrize(
    "state",
    [
        {"online": True},
        {"online": True, "trouble": "line 32"},
        {"online": False, "resting": "no usable data: line 32", "trouble": "line 32"},
        {"online": False, "resting": "rests: too warm"},
    ],
)
def test_a_last_will_counts_once_whatever_state_the_device_was_in(state: dict[str, Any]) -> None:
    device = Device()
    will = device.says(online=False)
    announced = device.says(**state)
    assert device.is_news(*announced)
    assert device.is_news(*will)
    assert not device.is_news(*will)
    if not state["online"]:
        assert not device.is_news(*announced), "nor does what was said before it come back"
    else:
        with pytest.raises(Unproven, match="came again"):
            device.is_news(*announced)
    assert device.is_news(*device.says(**state)), "the device itself does"
