"""Updates that wait for their receipt, on the device's own disk: a power cut after training costs no training."""

import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgefl import store
from edgefl.errors import StoreError
from edgefl.protocol import chunks
from edgefl.vector import State

log = logging.getLogger(__name__)

_FRAME = "frame"
_KEPT = "kept/"


@dataclass(frozen=True, slots=True)
class Held:
    """An update, ready to be sent, and what the device keeps once it is accepted."""

    job: str
    life: str
    round: int
    attempt: str
    model: str  # the session's key of what it was trained from
    frame: bytes
    digest: bytes
    kept: State


class Spool:
    """At most one update at a time waits here: a newer task supersedes an older one."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "update.spool"

    def put(self, held: Held) -> None:
        """After this returns, the update survives anything but the loss of the disk."""
        arrays: State = {_KEPT + name: array for name, array in held.kept.items()}
        arrays[_FRAME] = np.frombuffer(held.frame, np.uint8)
        about = {
            "job": held.job,
            "life": held.life,
            "round": held.round,
            "attempt": held.attempt,
            "model": held.model,
            "digest": held.digest.hex(),
        }
        store.save(self.path, arrays, about)

    def take(self) -> Held | None:
        """What waited when the device was last switched off; a damaged file is put away and trained again."""
        if not self.path.exists():
            return None
        try:
            arrays, about = store.load(self.path)
            frame = arrays.pop(_FRAME).tobytes()
            if chunks.digest(frame).hex() != about["digest"]:
                raise StoreError(f"{self.path}: its update is not the one it names")
        except (StoreError, KeyError) as error:
            log.warning("the spooled update cannot be used: %s", error)
            self.path.replace(self.path.with_suffix(".damaged"))
            return None
        kept = {name.removeprefix(_KEPT): array for name, array in arrays.items()}
        digest = bytes.fromhex(about["digest"])
        return Held(about["job"], about["life"], about["round"], about["attempt"], about["model"], frame, digest, kept)

    def clear(self) -> None:
        """Nothing waits any more."""
        self.path.unlink(missing_ok=True)
