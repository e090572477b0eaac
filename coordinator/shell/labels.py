"""Where the labels of devices come from: the fleet's members or, where it has none, the run file (`[fleet]`)."""

from collections.abc import Mapping

from coordinator.shell.fleet_broker import fleet_of
from edgefl.base.device_labels import known_names
from edgefl.fleet.members import Members, MembersFile
from edgefl.job.config.schema import EmulatedFleet, RunFile
from edgefl.job.run.job import device_names

Labels = Mapping[str, Mapping[str, str]]


class DeviceLabels:
    """The labels of a run's devices, read again when the list of members changes."""

    def __init__(self, run: RunFile, members: MembersFile | None = None) -> None:
        self._members, self._read, self._listed = members, Members(), run.devices
        self._labels: Labels = {} if members else _of_run(run)

    def now(self) -> Labels:
        """Return the labels of each device that has any."""
        if self._members is not None and (current := self._members.now()) is not self._read:
            each = {name: member.known_as for name, member in current.active().items() if not member.hosts}
            self._read, self._labels = (
                current,
                {name: labels for name, labels in each.items() if self._has(name, labels)},
            )
        return self._labels

    def _has(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether a device of the run has any; one that `[devices]` does not list is of other runs."""
        return bool(labels) and (not self._listed or name in self._listed)


def check(run: RunFile) -> None:
    """Raise `ConfigError` if `rounds.where` names a label that no device of the run's fleet has."""
    if run.where is not None:
        fleet = fleet_of(run)
        members = MembersFile(fleet.members) if fleet else None
        run.where.check_names(known_names(DeviceLabels(run, members).now().values()), "rounds.where")


def _of_run(run: RunFile) -> Labels:
    """Return the labels that the run file gives: those of the parts of its data, else as they stand there."""
    fleet, held = run.fleet or EmulatedFleet(), run.task.partition
    labels = fleet.labels_of(device_names(held.devices), run.run.seed) if held else fleet.labels
    return {name: of_device for name, of_device in labels.items() if of_device}
