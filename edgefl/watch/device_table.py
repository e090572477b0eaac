"""The devices in the live view: who matters comes first, and who is long gone is only counted."""

from collections import Counter
from enum import IntEnum

from rich.table import Table
from rich.text import Text

from edgefl.base.printable import printable
from edgefl.learn.evaluation.wording import size
from edgefl.watch.overview.rows import DeviceRow, DeviceState, Snapshot
from edgefl.watch.overview.troubles import not_in_run

FORGOTTEN = 60.0  # seconds after which a device that is offline has no row any more
NAME, NUMBERS = 24, 28  # columns of the terminal: the longest name that is shown whole, and all figures together


class DeviceRank(IntEnum):
    """How much a device matters to a reader, most first."""

    FAILING = 0
    AWAITED = 1
    WORKING = 2
    ANSWERED = 3
    IDLE = 4
    OFFLINE = 5


STYLES = {
    DeviceRank.FAILING: "red",
    DeviceRank.AWAITED: "yellow",
    DeviceRank.WORKING: "cyan",
    DeviceRank.OFFLINE: "dim",
}
KINDS: dict[DeviceState, DeviceRank] = {
    "offline": DeviceRank.OFFLINE,
    "declined": DeviceRank.FAILING,
    "refused": DeviceRank.FAILING,
    "quarantined": DeviceRank.FAILING,
    "no data": DeviceRank.FAILING,
    "barred": DeviceRank.FAILING,
    "asked": DeviceRank.WORKING,
    "training": DeviceRank.WORKING,
    "sending": DeviceRank.WORKING,
    "answered": DeviceRank.ANSWERED,
}


def rank_of(device: DeviceRow, s: Snapshot) -> DeviceRank:
    """What the device is doing for the round in hand; awaited is who others wait for: half of them have answered."""
    kind = DeviceRank.OFFLINE if not_in_run(device) else KINDS.get(device.state, DeviceRank.IDLE)
    if kind in (DeviceRank.OFFLINE, DeviceRank.FAILING) or s.open is None or device.name not in s.open.awaited:
        return kind
    return DeviceRank.AWAITED if 2 * len(s.open.answered) >= len(s.open.asked) else DeviceRank.WORKING


def ranked(s: Snapshot, now: float) -> tuple[list[tuple[DeviceRank, DeviceRow]], int]:
    """The devices worth a row, who matters first, and how many are left out as long gone."""
    known = sorted(((rank_of(device, s), device) for device in s.devices), key=lambda k: (k[0], k[1].name))
    shown = [(s, d) for s, d in known if s is not DeviceRank.OFFLINE or (d.live and now - d.since <= FORGOTTEN)]
    return shown, len(known) - len(shown)


def device_table(ranks: list[tuple[DeviceRank, DeviceRow]], forgotten: int, rows: int, width: int) -> Table:
    """At most `rows` lines, its heading and the count of those that found no room included."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    names = ["device", f"and {len(ranks) + forgotten} more", *(device.name for _, device in ranks)]
    doing = max(12, width - NUMBERS - 2 * 2 - min(NAME, max(map(len, names))))
    for title, most in (("device", NAME), ("doing", doing), ("samples", None), ("ms/step", None), ("sent", None)):
        left = title in ("device", "doing")
        table.add_column(title, justify="left" if left else "right", no_wrap=True, overflow="ellipsis", max_width=most)
    room = rows - 1 if len(ranks) < rows and not forgotten else rows - 2
    for rank, device in ranks[: max(0, room)]:
        pace = "-" if device.seconds_per_step is None else f"{1000 * device.seconds_per_step:.1f}"
        cells = device.name, words(device, rank), str(device.samples), pace, size(device.bytes_up)
        style = STYLES.get(rank, "")
        table.add_row(*(Text(printable(cell)) for cell in cells), style=style)  # a plain string would be read as markup
    left_out = Counter({DeviceRank.OFFLINE: forgotten}) + Counter(rank for rank, _ in ranks[max(0, room) :])
    if left_out:
        kinds = ", ".join(f"{count} {rank.name.lower()}" for rank, count in sorted(left_out.items()))
        table.add_row(Text(f"and {left_out.total()} more"), Text(kinds), "", "", "", style="dim")
    return table


def words(device: DeviceRow, rank: DeviceRank) -> str:
    """What the device does, for a human."""
    match device.state:
        case "training":
            description = f"training, step {device.steps}"
        case "quarantined":
            description = "in quarantine"
        case "barred":
            description = device.why
        case "excluded":
            description = f"not asked: {device.why}"
        case "declined" | "refused" | "busy" | "offline" | "no data" if device.why:
            description = f"{device.state}: {device.why}"
        case state:
            description = state
    return f"awaited: {description}" if rank is DeviceRank.AWAITED else description
