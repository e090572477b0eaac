"""Plays rounds of every size: a real broker, the real coordinator, and crowds of real agents."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from itertools import groupby, pairwise
from pathlib import Path
from statistics import median

import psutil

from edgefl.base.errors import RunError
from edgefl.lab.planning.costs import MeasuredRound
from edgefl.ops.bench.own_broker import started_broker
from edgefl.ops.bench.scale.losses import Losses
from edgefl.ops.bench.scale.points import Point, in_order
from edgefl.ops.bench.server import BenchServer, pid, start
from edgefl.system.processes import Child, python
from edgefl.wire.address import Address

CROWD = 200  # devices in a process
SETTLING = 1  # rounds that are not counted


def measure(
    points: Sequence[Point],
    folder: Path,
    say: Callable[[str], None],
    dropped: Callable[[int | None], None] | None = None,
) -> Iterator[MeasuredRound]:
    """Every point as soon as it is known; points of one size of fleet share its devices and its broker.

    `dropped`, if given, hears of each broker how many messages it could not keep, if it tells; that takes seconds.
    """
    for devices, same in groupby(in_order(points), lambda point: point.devices):
        place = folder / f"{devices}"
        place.mkdir()
        with ExitStack() as until_done:
            say(f"starting {devices} devices")
            address, served_by = until_done.enter_context(started_broker("mosquitto"))
            losses = until_done.enter_context(closing(Losses(address)))
            crowds = [
                start(until_done, _crowd(address, first, min(CROWD, devices - first)), place / f"{first}.log")
                for first in range(0, devices, CROWD)
            ]
            for number, point in enumerate(same):
                say(f"{point.devices} devices, cohort {point.cohort}, {point.params:,} parameters")
                yield _point(point, address, served_by, crowds, place / f"{number}")
            if dropped is not None:
                dropped(losses.count())


def _crowd(address: Address, first: int, count: int) -> list[str]:
    return python("edgefl.ops.bench.scale.crowd", str(address), str(first), str(count))


def _point(point: Point, address: Address, served_by: int, crowds: Sequence[Child], folder: Path) -> MeasuredRound:
    with ExitStack() as until_done:
        home = folder.parent  # whose key the devices have learnt to trust

        def command(line: Path) -> list[str]:
            options = str(address), str(line), str(point.devices), str(home)
            return python("edgefl.ops.bench.scale.coordinator", *options)

        server = BenchServer(f"{point.devices} devices", command, folder, until_done)
        coordinator, devices = pid(server.child), [pid(crowd) for crowd in crowds]
        rounds, broker = SETTLING + point.rounds, psutil.Process(served_by)
        order = {
            "params": point.params,
            "rounds": rounds,
            "codec": "float32",
            "cohort": point.cohort,
            "pids": [coordinator, served_by, *devices],
        }
        passed, peaks = list[tuple[float, float]](), list[float]()

        def seen(number: int) -> None:
            if number in (SETTLING, rounds):
                io = broker.io_counters()
                passed.append((io.read_chars / 1e6, io.write_chars / 1e6))
            if number == rounds:
                peaks.extend(_peak_mb(process) for process in (coordinator, served_by))

        marks, outcome = server.play(order, crowds, seen)
    counted = marks[SETTLING - 1 :]
    coordinator_cpu, broker_cpu, devices_cpu = (
        counted[-1].since(counted[0], pids) / point.rounds for pids in ([coordinator], [served_by], devices)
    )
    came, went = ((after - before) / point.rounds for before, after in zip(*passed, strict=True))
    return MeasuredRound(
        devices=point.devices,
        cohort=point.cohort,
        params=point.params,
        wall=median(later.moment - earlier.moment for earlier, later in pairwise(counted)),
        coordinator_cpu=coordinator_cpu,
        broker_cpu=broker_cpu,
        devices_cpu=devices_cpu,
        coordinator_mb=peaks[0],
        broker_mb=peaks[1],
        broker_in=came,
        broker_out=went,
        **outcome,
    )


def _peak_mb(process: int) -> float:
    """The most memory it ever had."""
    lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
    for line in lines:
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RunError(f"process {process} has no memory: it ended")
