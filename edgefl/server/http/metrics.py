"""Prometheus: fleets and the queue of a server, at each scrape. Names and units are by its conventions."""

from collections import Counter
from collections.abc import Iterator, Mapping
from copy import copy
from typing import get_args

from edgefl.server.decide.runs import ServerState
from edgefl.server.decide.vocabulary import Phase
from edgefl.watch.exporters.prometheus import FLEET, MetricFamily, Sample, device_families, exposition
from edgefl.watch.overview.rows import DeviceRow, DeviceState
from edgefl.watch.page.feed import Feed

RUNS = MetricFamily(
    "edgefl_server_runs", "gauge", "Runs of a fleet, by their phase; ended ones as long as they are known."
)
PLACES = MetricFamily("edgefl_server_places", "gauge", "Runs that may work at once, of all fleets together.")
LAST_ENDED = MetricFamily("edgefl_server_last_end_timestamp_seconds", "gauge", "When a run ended last, by its phase.")
SCHEDULES = MetricFamily(
    "edgefl_server_schedules", "gauge", "Schedules of a fleet: those that fire, and those that are paused."
)


def metrics() -> list[MetricFamily]:
    """Those that a server has and a run has not."""
    return [RUNS, PLACES, LAST_ENDED, SCHEDULES]


def text(feeds: Mapping[str, Feed], state: ServerState) -> str:
    """Everything of these fleets, as Prometheus reads it."""
    devices = {
        name: feed.look(lambda overview: [*map(copy, overview.devices.values())]) for name, feed in feeds.items()
    }
    return exposition(_families(devices, state))


def _families(
    devices: Mapping[str, list[DeviceRow]], state: ServerState
) -> Iterator[tuple[MetricFamily, list[Sample]]]:
    runs = [run for run in state.runs.values() if run.submission.fleet in devices]
    phases = Counter((run.submission.fleet, run.phase) for run in runs)
    yield RUNS, [({"fleet": name, "phase": one}, phases[name, one]) for name in devices for one in get_args(Phase)]
    yield PLACES, [({}, state.at_once)]
    ends: dict[tuple[str, str], float] = {}
    for run in runs:
        if run.over and run.ended is not None:
            key = run.submission.fleet, run.phase
            ends[key] = max(run.ended, ends.get(key, 0.0))
    yield LAST_ENDED, [({"fleet": fleet, "phase": phase}, at) for (fleet, phase), at in sorted(ends.items())]
    schedules = Counter((one.submission.fleet, one.paused) for one in state.schedules.values())
    yield (
        SCHEDULES,
        [({"fleet": name, "paused": str(is_paused).lower()}, schedules[name, is_paused])
         for name in devices for is_paused in (False, True)],
    )  # fmt: skip
    states = Counter((name, row.state) for name, rows in devices.items() for row in rows)
    yield (
        FLEET,
        [({"fleet": name, "state": one}, states[name, one]) for name in devices for one in get_args(DeviceState)],
    )
    yield from device_families([({"fleet": name}, rows) for name, rows in devices.items()])
