"""What algorithms keep on the device between rounds: of a job its newest run."""

import logging

from device_agent.durable.privacy_ledger import PrivacyLedger
from device_agent.durable.spool import SpooledUpdate
from edgefl.base.errors import StoreError
from edgefl.base.vector import State
from edgefl.learn.privacy import keep_spent
from edgefl.system import store
from edgefl.system.disk import Disk

log = logging.getLogger(__name__)


class States:
    """One file for each run; the one that was used last stays in memory."""

    def __init__(self, disk: Disk, device: str, ledger: PrivacyLedger) -> None:
        self._disk, self._device, self._ledger = disk, device, ledger
        self.last: dict[str, State] = {}

    def of(self, run: str) -> State:
        """What the algorithm kept in this run; private updates all count, not only those accepted."""
        return keep_spent(self._committed(run), self._ledger.state(run))

    def commit(self, held: SpooledUpdate) -> None:
        """The update was taken: what was kept with it holds from now on. To evaluate changes nothing."""
        if held.purpose != "train":
            return
        if held.kept:
            name = _name(held.run_key)
            self._disk.write(name, held.note or self._sealed(held))
            for older in self._disk.names(f"{held.job}.*.state"):
                if older != name:
                    self._disk.remove(older)
        self.last = {held.run_key: held.kept}

    def _sealed(self, held: SpooledUpdate) -> bytes:
        """Of an update that is in no spool."""
        return store.sealed(held.kept, {"job": held.run_key, "device": self._device})

    def _committed(self, run: str) -> State:
        if run not in self.last:
            self.last = {run: self._read(_name(run))}
        return self.last[run]

    def _read(self, name: str) -> State:
        try:
            raw = self._disk.read(name)
            return {} if raw is None else store.opened(raw, self._disk.where(name))[0]
        except StoreError as error:
            log.warning("what was kept between rounds is lost: %s", error)
            return {}


def _name(run: str) -> str:
    return f"{run}.state"
