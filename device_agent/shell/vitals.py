"""How this machine fares: read from /proc and /sys when a message goes out anyway, and never in between.

Nothing here raises: what a machine does not tell, or tells nonsense about, is None. `root` is where /proc and /sys are.
A Jetson's sensors are thermal zones like any other's; `tegrastats` shows the same files.
"""

import os
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from edgefl.wire.messages import WireVitals

PROCESSOR = ("cpu", "soc", "gpu", "tj", "x86_pkg", "core", "k10temp")  # sensors of what computes go before others
CONSTANT = ("pmic", "iwlwifi", "acpitz")  # not a processor's, or the same whatever happens: PMIC-Die is always at 100
FIRMWARE = "sys/devices/platform/soc/soc:firmware/get_throttled"  # of a Raspberry Pi: the bits of `vcgencmd`
NOW = 0xF  # of these bits: under-voltage, frequency capped, throttled, soft temperature limit; others are of the past
VCGENCMD = ("/usr/bin/vcgencmd", "get_throttled")


def _vcgencmd() -> str:
    import subprocess  # noqa: PLC0415 - half a megabyte, and only an old system of a Raspberry Pi needs it

    try:
        done = subprocess.run(VCGENCMD, capture_output=True, text=True, check=True, timeout=1.0)  # noqa: S603 - ours
    except subprocess.SubprocessError as error:
        raise OSError(str(error)) from None
    return done.stdout.partition("=")[2]


class Machine:
    """One machine, and the folder whose disk matters."""

    def __init__(self, folder: Path, root: Path = Path("/"), vcgencmd: Callable[[], str] = _vcgencmd) -> None:
        self.folder, self.root, self.vcgencmd = folder, root, vcgencmd
        self.has_vcgencmd = (root / VCGENCMD[0].lstrip("/")).exists()

    def __call__(self) -> WireVitals:
        """How it fares now."""
        battery, charging = self._power()
        memory = self._memory()
        disk_free, disk_total = self._disk()
        vitals = {
            "temperature": self._temperature(),
            "throttled": self._throttled(),
            "load": self._load(),
            "memory_free": memory.get("MemAvailable"),
            "memory_total": memory.get("MemTotal"),
            "disk_free": disk_free,
            "disk_total": disk_total,
            "battery": battery,
            "charging": charging,
        }
        try:
            return WireVitals.model_validate(vitals)
        except ValidationError as error:  # a broken sensor is no reason to be sent away by a coordinator
            nonsense = {str(one["loc"][0]) for one in error.errors(include_input=False)}
            return WireVitals.model_validate({name: one for name, one in vitals.items() if name not in nonsense})

    def _temperature(self) -> float | None:
        """Of the hottest processor, or else of the hottest sensor that tells anything."""
        sensors = self._sensors("thermal", "thermal_zone", "type", "temp")
        if not any(of_processor for of_processor, _ in sensors):
            sensors += self._sensors("hwmon", "hwmon", "name", "temp1_input")
        best = max((of_processor for of_processor, _ in sensors), default=False)
        readings = (self._number(path) for of_processor, path in sensors if of_processor is best)
        return max((one / 1000 for one in readings if one is not None), default=None)

    def _sensors(self, kind: str, prefix: str, name: str, value: str) -> list[tuple[bool, Path]]:
        """Whether it is a processor's, and where its thousandths of a degree are."""
        named = [(self._text(one / name).lower(), one / value) for one in self._each(f"sys/class/{kind}", prefix)]
        return [
            (any(word in name for word in PROCESSOR), path) for name, path in named if not name.startswith(CONSTANT)
        ]

    def _throttled(self) -> bool | None:
        """Whether the processor is slowed down, by a Raspberry Pi's firmware or by the kernel."""
        bits = self._text(self.root / FIRMWARE)
        if not bits and self.has_vcgencmd:
            try:
                bits = self.vcgencmd()
            except OSError:  # its user may not ask: nor may it the next time
                self.has_vcgencmd = False
        try:
            return bool(int(bits, 16) & NOW)
        except ValueError:
            pass
        coolers = [
            self._number(device / "cur_state")
            for device in self._each("sys/class/thermal", "cooling_device")
            if "cpufreq" in (kind := self._text(device / "type").lower()) or kind == "processor"
        ]
        states = [state for state in coolers if state is not None]
        return any(states) if states else None

    def _load(self) -> float | None:
        first = self._text(self.root / "proc/loadavg").partition(" ")[0]
        try:
            return float(first) / (os.cpu_count() or 1)
        except ValueError:
            return None

    def _memory(self) -> dict[str, int]:
        """Bytes, by the kernel's names for them."""
        lines = (line.split() for line in self._text(self.root / "proc/meminfo").splitlines())
        return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if len(words) == 3 and words[1].isdigit()}

    def _disk(self) -> tuple[int | None, int | None]:
        try:
            disk = os.statvfs(self.folder)
        except OSError:
            return None, None
        return disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize

    def _power(self) -> tuple[float | None, bool | None]:
        """The share that is left in the battery, and whether there is another source; of a mouse's nothing."""
        shares: list[float] = []
        sources: list[bool] = []
        for supply in self._each("sys/class/power_supply", ""):
            if self._text(supply / "scope") == "Device":
                continue
            if self._text(supply / "type") == "Battery":
                left = self._number(supply / "capacity")
                shares += [] if left is None else [left / 100]
                sources.append(self._text(supply / "status") in ("Charging", "Full", "Not charging"))
            else:
                sources.append(self._number(supply / "online") == 1)
        return min(shares, default=None), any(sources) if sources else None

    def _each(self, folder: str, prefix: str) -> list[Path]:
        try:
            return sorted(path for path in (self.root / folder).iterdir() if path.name.startswith(prefix))
        except OSError:
            return []

    def _number(self, path: Path) -> float | None:
        try:
            return float(self._text(path))
        except ValueError:
            return None

    def _text(self, path: Path) -> str:
        try:
            return path.read_text(encoding="ascii", errors="replace").strip()
        except OSError:
            return ""
