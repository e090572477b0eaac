"""What a coordinator has said already: an old task, receipt, refusal or state that comes again does nothing.

Of each run the last counters are kept, those of the messages to this device and that of the state, and whether it has
ended. A message to the device must be newer than the last one. A state may be the last one again, because the broker
sends it after every connect. Of a run that has ended nothing is heard but its last state, until its coordinator
says in a newer one that it goes on; what was said before the end stays old.

On disk there are two files. The agent writes the counter of each message to one of them, without waiting for the disk:
this survives any sudden end of the agent. That file is synced with the first message after a minute, when a run ends,
and when the agent ends. From then on the other file is used, so a power cut leaves one that is whole. After a power
cut, messages of the last minute could be accepted a second time; the update that they led to is in the spool, or was
received.
"""

import json
import logging
from collections import OrderedDict
from dataclasses import dataclass
from hashlib import sha256

from edgefl.base.errors import StoreError, WireError
from edgefl.system.clock import Clock
from edgefl.system.disk import Disk
from edgefl.system.json_text import parse_json

log = logging.getLogger(__name__)

RUNS = 256  # that are remembered; of others only what is newer than the last one that was forgotten is heard
SYNCED = 60.0  # seconds between two syncs


@dataclass(slots=True)
class LastHeard:
    """The last of one run."""

    down: int = -1
    state: int = -1
    ended: bool = False


class Replays:
    """Tells what is new; `key` is the coordinator's, and of another one nothing is known."""

    def __init__(self, disk: Disk, fleet: str, clock: Clock) -> None:
        self._disk, self.names = disk, [f"{fleet}.heard.{number}" for number in (0, 1)]
        self.key, self.floor = "", -1
        self.runs: OrderedDict[str, LastHeard] = OrderedDict()
        self.clock, self._synced = clock, clock.now()
        self._number = self._slot = 0
        self._changed = False
        self._there: set[int] = set()  # slots whose file is ours
        self._read()

    def new_message(self, key: str, run: str, counter: int) -> None:
        """Something said to this device; a WireError if it is old."""
        heard = self._of(key, run, counter)
        if heard.ended or counter <= heard.down:
            raise WireError("message.replayed", f"an old message of run {run} came again")
        heard.down = counter
        self._keep(run, heard)

    def new_state(self, key: str, run: str, counter: int, *, finished: bool) -> None:
        """A state; a WireError if it is older than the last one."""
        heard = self._of(key, run, counter)
        if counter < heard.state or (counter == heard.state and finished < heard.ended):
            raise WireError("message.replayed", f"an old state of run {run} came again")
        if (counter, finished) == (heard.state, heard.ended):
            return
        ends = finished and not heard.ended
        heard.state, heard.ended = counter, finished
        if finished:  # one speaker counts both: a task that was held back on its way does not come after the end
            heard.down = max(heard.down, counter)
        self._keep(run, heard)
        if ends:
            self.sync()

    def sync(self) -> None:
        """After this returns, what was heard survives a power cut."""
        if not self._changed:
            return
        try:
            self._write(synced=True)
        except StoreError as error:
            log.warning("the counters of received messages are not on disk: %s", error)
            return
        self._slot, self._changed, self._synced = 1 - self._slot, False, self.clock.now()

    def _of(self, key: str, run: str, counter: int) -> LastHeard:
        if key != self.key:
            self.key, self.floor = key, -1
            self.runs.clear()
        known = self.runs.get(run)
        if known is None and counter <= self.floor:
            raise WireError(
                "message.replayed", f"run {run} is older than {RUNS} other runs of which this device keeps the counters"
            )
        return known or LastHeard()

    def _keep(self, run: str, heard: LastHeard) -> None:
        self.runs[run] = heard
        self.runs.move_to_end(run)
        while len(self.runs) > RUNS:
            _, forgotten = self.runs.popitem(last=False)
            self.floor = max(self.floor, forgotten.down, forgotten.state)
        self._changed = True
        if self.clock.now() - self._synced > SYNCED:
            self.sync()
            return
        try:
            self._write(synced=False)
        except StoreError as error:
            log.warning("the counters of received messages are not on disk: %s", error)

    def _write(self, *, synced: bool) -> None:
        self._number += 1
        runs = {run: {"down": one.down, "state": one.state, "ended": one.ended} for run, one in self.runs.items()}
        text = json.dumps({"number": self._number, "key": self.key, "floor": self.floor, "runs": runs}).encode()
        data, name = sha256(text).hexdigest().encode() + b"\n" + text + b"\n", self.names[self._slot]
        if not synced and self._slot in self._there:
            self._there.discard(self._slot)  # unless this goes well: it may have been removed
            self._disk.patch(name, data)  # what may stand behind it is of a longer one from before
        else:
            self._disk.overwrite(name, data)
        self._there.add(self._slot)

    def _read(self) -> None:
        """The newer of the two files that are whole."""
        for slot, name in enumerate(self.names):
            digest, text, *_ = *(self._disk.read(name) or b"").split(b"\n", 2), b"", b""
            if sha256(text).hexdigest().encode() != digest:
                continue
            told = parse_json(text)
            if told["number"] > self._number:
                self._number, self._slot = told["number"], 1 - slot
                self.key, self.floor = told["key"], told["floor"]
                self.runs = OrderedDict((run, LastHeard(**heard)) for run, heard in told["runs"].items())
