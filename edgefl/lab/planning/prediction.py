"""How long a run will take and what it needs: devices by their profiles, the server by what was measured.

A round lasts as long as the slowest device that it waits for (model down, training, answer up), then the coordinator's
and the broker's own work on it. Breakdowns, absences and a crowded radio are not in it: `edgefl simulate` with [fleet]
plays those.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from edgefl.base import seeds
from edgefl.lab.planning.costs import Costs, RoundSize
from edgefl.lab.planning.demand import Demand
from edgefl.system.hardware.profiles import Hardware

DRAWS = 400  # cohorts that are drawn to know the usual slowest one
ALONE, FETCHED = 2, 4  # times a line's latency: task and answer; and to subscribe to a model, and its coming
CROWDED = 0.5  # share of a round that the server's own work may take before it is the bottleneck


@dataclass(frozen=True, slots=True)
class Prediction:
    """Seconds and MB, of a round that asks devices unless it says `run`."""

    kinds: dict[str, float]  # seconds of a device of each kind
    waiting: float  # for the slowest of a usual cohort
    serving: float  # coordinator and broker
    round: float
    run: float
    broker_in: float
    broker_out: float
    run_traffic: float  # through the broker, both ways
    coordinator_cpu: float
    broker_cpu: float
    coordinator_mb: float
    broker_mb: float
    late: bool  # the deadline ends a usual round

    @property
    def megabits(self) -> float:
        """Mbit/s through the broker, both ways, in the mean."""
        return 8 * (self.broker_in + self.broker_out) / self.round


def predict(demand: Demand, costs: Costs) -> Prediction:
    """What the measured constants and the profiles of devices make of it."""
    size = RoundSize(demand.devices, demand.asked, (demand.down + demand.up) / 2e6)
    kinds = {kind: _seconds(demand, kind, 1.0) for kind in demand.fleet}
    waiting, late = _waiting(demand)
    coordinator, broker = costs.of("coordinator_cpu", size), costs.of("broker_cpu", size)
    round = waiting + coordinator + broker
    came, went = costs.of("broker_in", size), costs.of("broker_out", size)
    asking = demand.rounds * demand.asking
    return Prediction(
        kinds=kinds,
        waiting=waiting,
        serving=coordinator + broker,
        round=round,
        run=asking * round,
        broker_in=came,
        broker_out=went,
        run_traffic=asking * (came + went),
        coordinator_cpu=coordinator,
        broker_cpu=broker,
        coordinator_mb=costs.of("coordinator_mb", size),
        broker_mb=costs.of("broker_mb", size),
        late=late,
    )


def concerns(demand: Demand, prediction: Prediction, limit_mb: float) -> Iterator[str]:
    """Return what to look at before the fleet is bought."""
    slow = max(prediction.kinds, key=lambda kind: prediction.kinds[kind])
    if prediction.late:
        yield (
            f"rounds.deadline = {demand.deadline:g} s ends a usual round: a {slow} needs"
            f" {prediction.kinds[slow]:.0f} s; raise it, or let rounds.over_select take the fastest"
        )
    if prediction.serving > CROWDED * prediction.round:
        yield "the server's own work takes most of a round: a larger fleet would wait for it, not for devices"
    if demand.down > limit_mb * 2**20:
        size = demand.down / 2**20
        yield (
            f"the model has {size:.0f} MiB, and a device accepts at most agent.limit_mb = {limit_mb:g} (MiB);"
            " raise it in the agent files"
        )


def _seconds(demand: Demand, kind: str, noise: float) -> float:
    """A device's part of a round: the model down, its steps, the answer up."""
    profile = demand.profiles[kind]
    line, pace = Hardware(profile, demand.reference).line, demand.reference / profile.speed * noise
    trips = ALONE if demand.enclosed else FETCHED
    return trips * line.latency + demand.down / line.down + demand.steps * pace + demand.up / line.up


def _waiting(demand: Demand) -> tuple[float, bool]:
    """Seconds until a usual cohort has answered, and whether that is the deadline's doing."""
    fleet = [kind for kind, count in demand.fleet.items() for _ in range(count)]
    rng = seeds.stream(0, "plan")
    ends = []
    for _ in range(DRAWS):
        cohort = (fleet[i] for i in rng.choice(len(fleet), demand.asked, replace=False))
        jitter = ((kind, demand.profiles[kind].jitter) for kind in cohort)
        times = [_seconds(demand, kind, float(rng.lognormal(0, spread))) for kind, spread in jitter]
        ends.append(sorted(times)[demand.cohort - 1])
    usual = float(np.median(ends))
    return min(usual, demand.deadline), usual > demand.deadline
