"""Whose word counts here and whose models are trained on: one coordinator's, named by the agent file or met first.

Only an agent at a broker on loopback may lack `agent.coordinator`. It writes down the first key that signs a task for
it, and trusts that key from then on (trust on first use). A manifest must also name the job, run and round that the
device asked for, so that an old signed one cannot replace a new one.
"""

import logging
from dataclasses import dataclass

from edgefl.base.errors import ConfigError, StoreError, WireError
from edgefl.system.disk import Disk
from edgefl.system.logs import TOLD
from edgefl.wire import signing
from edgefl.wire.messages import Manifest, read_json

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RequestedModel:
    """Something that was asked for: a model of a round, or (round 0) the graphs."""

    job: str
    run_id: str
    round: int
    id: str


class Trust:
    """Decides which manifests are believed; keeps the key of the first in the device's folder."""

    def __init__(self, disk: Disk, fleet: str, given: str | None = None, models: str | None = None) -> None:
        self.models = models  # whose models these are, where who speaks is a gateway
        self._disk, self._name = disk, f"{fleet}.coordinator"
        self.path = disk.where(self._name)
        self.given, self.key = given, given or _pinned(disk, self._name)

    def manifest(self, payload: bytes, target: RequestedModel, *, proven: bool = False) -> Manifest:
        """The manifest, if the coordinator signed it for what is wanted; else a WireError that begins with `model.`.

        One that came inside a signed message is `proven` by that.
        """
        claim = signing.claim(payload)
        if self.models not in (None, claim.key):
            raise WireError(
                "model.signature", f"signed by {claim.key}, but agent.models is {self.models}", free_of_data=True
            )
        if self.models is None and not self.trusts(claim.key):
            raise WireError(
                "model.signature", self.why(claim.key), told=f"signed by {claim.key}, which this device does not trust"
            )
        if self.models is not None or not proven:
            claim.prove()
        manifest = read_json(Manifest, claim.statement)
        if (manifest.job, manifest.run_id, manifest.round) != (target.job, target.run_id, target.round):
            raise WireError(
                "model.foreign",
                f"signed for job '{manifest.job}', run {manifest.run_id}, round {manifest.round}; wanted is"
                f" job '{target.job}', run {target.run_id}, round {target.round}",
                free_of_data=True,
            )
        if not manifest.digest.startswith(target.id):
            why = f"signed for model {manifest.digest[:16]}; wanted is {target.id}"
            raise WireError("model.foreign", why, free_of_data=True)
        if self.key is None and self.models is None:
            self.pin(claim.key)
        return manifest

    def trusts(self, key: str) -> bool:
        """Whether this is the coordinator's key, or may become it."""
        return self.key in (None, key)

    def why(self, key: str) -> str:
        """Why another key is not believed, and what to do about it."""
        return f"signed by {key}, but this device trusts {self.key}: {self._how}"

    @property
    def _how(self) -> str:
        if self.given:
            return "if that is the coordinator's new key, set agent.coordinator to it"
        return f"if that is the coordinator's new key, delete {self.path} and restart, or set agent.coordinator to it"

    def pin(self, key: str) -> None:
        """Trust this key from now on, and no other."""
        self.key = key
        what = "first coordinator seen, no other is trusted from now on key=%s pinned=%s"
        log.info(what, key, self.path, extra=TOLD)
        try:
            self._disk.write(self._name, f"{key}\n".encode())
        except StoreError as error:  # it holds for this life; the next one meets the coordinator anew
            log.warning("the coordinator's key is not pinned: %s", error)


def _pinned(disk: Disk, name: str) -> str | None:
    raw = disk.read(name)
    if raw is None:
        return None
    key = raw.decode(errors="replace").strip()
    try:
        signing.key_bytes(key)
    except ValueError:
        raise ConfigError(
            f"{disk.where(name)} does not hold the coordinator's key: delete it to trust the next coordinator that"
            " comes, or set agent.coordinator"
        ) from None
    return key
