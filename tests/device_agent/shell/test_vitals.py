"""How a machine fares, read from made-up /proc and /sys trees of the machines that devices are."""

import os
from pathlib import Path

import pytest

from device_agent.shell.vitals import Machine, _vcgencmd
from edgefl.wire.messages import WireVitals

PROC = {
    "proc/meminfo": "MemTotal:  3884328 kB\nMemFree:  200000 kB\nMemAvailable:  2500000 kB\nHugePages_Total:  0\n",
    "proc/loadavg": "1.50 0.80 0.50 2/345 6789\n",
}
PI = PROC | {
    "sys/class/thermal/thermal_zone0/type": "cpu-thermal\n",
    "sys/class/thermal/thermal_zone0/temp": "61835\n",
    "sys/class/thermal/cooling_device0/type": "rpi-poe-fan\n",
    "sys/class/thermal/cooling_device0/cur_state": "3\n",
    "sys/devices/platform/soc/soc:firmware/get_throttled": "50000\n",
}
JETSON = PROC | {
    "sys/class/thermal/thermal_zone0/type": "AO-therm\n",
    "sys/class/thermal/thermal_zone0/temp": "70000\n",
    "sys/class/thermal/thermal_zone1/type": "CPU-therm\n",
    "sys/class/thermal/thermal_zone1/temp": "48500\n",
    "sys/class/thermal/thermal_zone2/type": "GPU-therm\n",
    "sys/class/thermal/thermal_zone2/temp": "51000\n",
    "sys/class/thermal/thermal_zone3/type": "PMIC-Die\n",
    "sys/class/thermal/thermal_zone3/temp": "100000\n",
    "sys/class/thermal/cooling_device0/type": "thermal-cpufreq-0\n",
    "sys/class/thermal/cooling_device0/cur_state": "2\n",
}
LAPTOP = PROC | {
    "sys/class/thermal/thermal_zone0/type": "acpitz\n",
    "sys/class/thermal/thermal_zone0/temp": "27800\n",
    "sys/class/hwmon/hwmon0/name": "nvme\n",
    "sys/class/hwmon/hwmon0/temp1_input": "70000\n",
    "sys/class/hwmon/hwmon1/name": "k10temp\n",
    "sys/class/hwmon/hwmon1/temp1_input": "55125\n",
    "sys/class/power_supply/AC/type": "Mains\n",
    "sys/class/power_supply/AC/online": "0\n",
    "sys/class/power_supply/BAT0/type": "Battery\n",
    "sys/class/power_supply/BAT0/capacity": "83\n",
    "sys/class/power_supply/BAT0/status": "Discharging\n",
    "sys/class/power_supply/hid-mouse/type": "Battery\n",
    "sys/class/power_supply/hid-mouse/scope": "Device\n",
    "sys/class/power_supply/hid-mouse/capacity": "5\n",
}


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def read(root: Path, files: dict[str, str]) -> WireVitals:
    return Machine(root, tree(root, files))()


def test_a_raspberry_pi_tells_its_heat_and_what_its_firmware_did(tmp_path: Path) -> None:
    vitals = read(tmp_path, PI)
    assert vitals.temperature == 61.835
    assert vitals.throttled is False, "it was, some time ago; it is not now"
    assert (vitals.memory_free, vitals.memory_total) == (2_500_000 * 1024, 3_884_328 * 1024)
    assert vitals.load == 1.5 / (os.cpu_count() or 1)
    assert (vitals.battery, vitals.charging) == (None, None)
    assert 0 < vitals.disk_free <= vitals.disk_total


@pytest.mark.parametrize(("bits", "throttled"), [("0", False), ("50005", True), ("0x2", True), ("80000", False)])
def test_only_the_bits_of_now_count(bits: str, throttled: bool, tmp_path: Path) -> None:
    vitals = read(tmp_path, PI | {"sys/devices/platform/soc/soc:firmware/get_throttled": bits})
    assert vitals.throttled is throttled


def test_a_pi_whose_kernel_does_not_tell_is_asked_by_vcgencmd_until_that_fails(tmp_path: Path) -> None:
    files = {name: text for name, text in PI.items() if "firmware" not in name} | {"usr/bin/vcgencmd": ""}
    asked = []

    def vcgencmd() -> str:
        asked.append(1)
        if len(asked) > 1:
            raise OSError("vcgencmd ended with 255")
        return "0x50004\n"

    machine = Machine(tmp_path, tree(tmp_path, files), vcgencmd)
    assert [machine().throttled for _ in range(3)] == [True, None, None]
    assert len(asked) == 2


def test_a_vcgencmd_that_fails_is_an_error_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("device_agent.shell.vitals.VCGENCMD", ("false",))
    with pytest.raises(OSError, match="non-zero exit status"):
        _vcgencmd()


def test_a_jetson_tells_the_hottest_of_what_computes_and_not_its_power_chip(tmp_path: Path) -> None:
    vitals = read(tmp_path, JETSON)
    assert (vitals.temperature, vitals.throttled) == (51.0, True)


def test_a_laptop_tells_its_own_battery_and_no_mouses(tmp_path: Path) -> None:
    vitals = read(tmp_path, LAPTOP)
    assert (vitals.temperature, vitals.battery, vitals.charging) == (55.125, 0.83, False)
    on_mains = read(tmp_path, {"sys/class/power_supply/AC/online": "1\n"})
    assert on_mains.charging is True


def test_a_machine_that_tells_nothing_is_no_error(tmp_path: Path) -> None:
    vitals = Machine(tmp_path / "gone", tmp_path)()
    assert vitals == WireVitals()


def test_nonsense_is_left_out_and_the_rest_is_told(tmp_path: Path) -> None:
    nonsense = {
        "sys/class/thermal/thermal_zone0/temp": "65535000\n",
        "proc/loadavg": "nan 1 1\n",
        "sys/class/power_supply/BAT0/type": "Battery\n",
        "sys/class/power_supply/BAT0/capacity": "255\n",
    }
    vitals = read(tmp_path, PI | nonsense)
    assert (vitals.temperature, vitals.load, vitals.battery) == (None, None, None)
    assert vitals.memory_total == 3_884_328 * 1024


def test_this_machine_can_be_read(tmp_path: Path) -> None:
    vitals = Machine(tmp_path)()
    assert None not in (vitals.memory_free, vitals.memory_total, vitals.load, vitals.disk_free)
