"""Progress while things go wrong: a quorum that is healthy gets on, whatever happens to the other devices.

Healthy is a machine that runs, is connected, has room on its disk and does not lie; one that has just started or
connected, or lost a message, is healthy from then on. Where a coordinator and a quorum of devices have been healthy for
`bound` seconds, without a storm between them, a round must have been closed in that time. Where rounds wait for no
device one device is enough.
"""

from collections.abc import Mapping

from coordinator.decide.devices import LACKING, PATIENCE
from coordinator.decide.modes import waits_for_nobody
from device_agent.decide.session import HOPELESS
from edgefl.job.config.schema import RunFile
from tools.chaos.machines import ChaosMachine, CoordinatorMachine, DeviceMachine
from tools.faulty_network import FaultyBroker

EVERY = 2.0  # virtual seconds from one look to the next
DEADLINES = 4  # of an opening that is given up, of those who are asked first, of spares, and of another run's round


def bound(run: RunFile) -> float:
    """Seconds that a round takes at most among healthy machines, if the others could not be worse.

    Deadlines, until those are asked who are healthy; before them, until it is known who is there, and behind them, a
    model of another run that does not come, and the training itself.
    """
    return DEADLINES * run.rounds.deadline + PATIENCE + LACKING + HOPELESS


class Progress:
    """Looks now and then how long each machine has been healthy."""

    def __init__(
        self,
        devices: Mapping[str, DeviceMachine],
        coordinators: Mapping[str, CoordinatorMachine],
        broker: FaultyBroker,
    ) -> None:
        self.devices, self.coordinators, self.broker = devices, coordinators, broker
        machines = (*devices.values(), *coordinators.values())
        self._names = {machine.client: machine.name for machine in machines}
        self._lives = {machine.name: (0, -1) for machine in machines}  # its life, and its connection
        self._since: dict[str, float] = {}  # healthy since then; who is not here is not
        self._closed = dict.fromkeys(coordinators, (0, 0.0))  # rounds, and when the last one was seen to be

    def disturbed(self, client: str, now: float) -> None:
        """Something was done to it that it has to make up for."""
        if (name := self._names.get(client)) in self._since:
            self._since[name] = now

    def stuck(self, now: float, disputed: set[str], storm: bool) -> str:
        """Why a run should have got on, and did not; `disputed` are names that two devices call themselves by."""
        for machine in (*self.devices.values(), *self.coordinators.values()):
            self._look(machine, now, well=machine.name not in disputed and not storm)
        for name, machine in self.coordinators.items():
            if (shell := machine.shell) is None or name not in self._since:
                continue
            rounds = shell.state.rounds
            closed = rounds.round + (rounds.phase == "merging")
            if closed != self._closed[name][0]:
                self._closed[name] = closed, now
            needed = 1 if waits_for_nobody(rounds) else machine.run.quorum  # whose answer is merged at the deadline
            if rounds.phase == "starting":
                needed = max(needed, machine.run.start_with or 0)
            healthy = sorted(self._since[device] for device in self.devices if device in self._since)
            if len(healthy) < needed:
                continue
            since = max(self._since[name], self._closed[name][1], healthy[needed - 1])
            if now - since > bound(machine.run):
                well = f"{name} and {len(healthy)} devices are well since {since:.0f}"
                return f"{well}, and no round was closed by {now:.0f}"
        return ""

    def _look(self, machine: ChaosMachine, now: float, *, well: bool) -> None:
        connection = self.broker.connection(machine.client)
        lies = isinstance(machine, DeviceMachine) and machine.lies
        well = well and machine.process is not None and machine.disk.capacity is None and not lies
        if connection is None or not well:
            self._since.pop(machine.name, None)
            return
        if self._lives[machine.name] != (machine.lives, connection):
            self._lives[machine.name] = machine.lives, connection
            self._since.pop(machine.name, None)
        self._since.setdefault(machine.name, now)
