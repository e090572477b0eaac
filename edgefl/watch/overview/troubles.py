"""Which devices need a person, why and since when: the same sentences for status, fleet list and page. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from edgefl.watch.overview.rows import DeviceRow

NOT_IN_RUN = "not in this run"  # how the reason begins of devices that nothing is wrong with


@dataclass(frozen=True, slots=True)
class DeviceTrouble:
    """What is wrong with one device."""

    device: str
    text: str
    since: float | None


def trouble_with(row: DeviceRow, now: float) -> DeviceTrouble | None:
    """Return what is wrong with this device, or None; what an operator cannot change is not."""
    if row.certificate_ends is not None and row.certificate_ends <= now and row.state == "offline":
        return DeviceTrouble(row.name, row.why or "its certificate has ended", row.certificate_ends)
    if row.data_trouble:
        return DeviceTrouble(row.name, row.data_trouble, row.data_since)
    if row.state == "barred" and not_in_run(row):
        return None
    if row.state == "barred":
        return DeviceTrouble(row.name, f"does not take part: {row.why}", row.since)
    return None


def of_the_run(rows: Iterable[DeviceRow]) -> list[DeviceRow]:
    """Return the devices that the run is for."""
    return [row for row in rows if not not_in_run(row)]


def not_in_run(row: DeviceRow) -> bool:
    """Return whether the run is for other devices, and nothing is wrong with this one."""
    return row.state == "barred" and row.why.startswith(NOT_IN_RUN)
