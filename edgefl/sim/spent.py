"""What an emulated fleet has spent, by its facts: bytes, virtual seconds, and joules as device profiles assume them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from edgefl.base.events import Answered, Asked, Described, Evaluated, Fact, Round
from edgefl.system.hardware.profiles import Hardware


@dataclass(slots=True)
class Spent:
    """So far. Devices know themselves what their work took (`worked`); what was sent is seen here."""

    hardware: Mapping[str, Hardware]
    worked: Callable[[], float]
    up: int = 0
    down: int = 0
    round: int = 0  # the last one that was told
    seconds: float = 0.0  # virtual
    joules: float = 0.0  # up to the last round that was told
    radio: float = 0.0  # joules

    @property
    def sent(self) -> int:
        """Bytes, both ways."""
        return self.up + self.down

    def add(self, fact: Fact) -> None:
        """One more fact."""
        match fact:
            case Asked(devices=devices, bytes_down=sent):
                self.radio += sum(self.hardware[name].radio_joules(down=sent / len(devices)) for name in devices)
            case Answered(device=device, bytes=sent):
                self.radio += self.hardware[device].radio_joules(up=sent)
            case Round(round=round, bytes_up=up, bytes_down=down, virtual_seconds=seconds):
                self.up, self.down, self.seconds = self.up + up, self.down + down, self.seconds + (seconds or 0.0)
                self.round = round
            case Evaluated(bytes_up=up, bytes_down=down) | Described(bytes_up=up, bytes_down=down):
                self.up, self.down = self.up + up, self.down + down

    def since_last_time(self) -> float:
        """The joules since this was asked last."""
        before, self.joules = self.joules, self.radio + self.worked()
        return self.joules - before
