"""What a coordinator is told when it is made, beside its run file: whom it believes, and where its models come from."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from coordinator.decide.rounds import Rounds
from coordinator.durable.journal import Journal
from coordinator.shell import merging
from coordinator.shell.artifacts import Artifacts
from coordinator.shell.device_keys import DeviceKeys
from coordinator.shell.renewals import Renewals
from edgefl.fleet.notices import Notices
from edgefl.job.run.job import Job
from edgefl.system.background import Work
from edgefl.wire.sealing import Opener
from edgefl.wire.signing import Signer

Prepare: TypeAlias = Callable[[], Job]


@dataclass(frozen=True, slots=True)
class Security:
    """Who signs, which devices are believed, and whether answers are sealed."""

    signer: Signer | None = None  # None: a new key
    device_keys: DeviceKeys | None = None  # None: those that the run file lists
    renewals: Renewals | None = None  # of certificates, where the fleet has an authority
    notices: Notices | None = None  # of the fleet to its members, where its folder is on this machine
    seal: bool | None = None  # None: as the run file says


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Where the models of a run come from: made here, or handed on by a gateway."""

    artifacts: Callable[..., Artifacts] = Artifacts
    preparing: Callable[[Prepare, Journal | None, Rounds | None, Opener], Work] = merging.preparing
