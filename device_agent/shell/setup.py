"""What an agent is told when it is made, in records by subject; see `service.Agent`."""

import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from device_agent.durable.broker_addresses import BrokerAddresses
from device_agent.durable.own_models import LIMIT_MB as OWN_MODELS_MB
from device_agent.durable.own_models import MOST as OWN_MODELS
from device_agent.shell.backends import MakeModel
from device_agent.shell.board import Board
from device_agent.shell.order import Train
from device_agent.shell.renewal import CertificateRenewal
from device_agent.shell.samples import Samples
from device_agent.shell.training import Training
from device_agent.shell.workers import DoWork
from edgefl.job.config.agent_file import LIMIT_MB
from edgefl.job.config.allowance import Allowance
from edgefl.job.run.work import Worker
from edgefl.learn.data.dataset import Dataset
from edgefl.system.background import Put
from edgefl.wire.messages import Examined, JobState, WireVitals
from edgefl.wire.sealing import SYSTEM, Entropy
from edgefl.wire.signing import Signer


@dataclass(frozen=True, slots=True)
class DeviceIdentity:
    """Who the device is, and what it says of itself."""

    device: str
    fleet: str
    back_end: str  # that trains: torch, onnx, or gateway
    site: str = ""  # whose broker it is at
    host: str | None = None  # the name of its machine; None: as the machine says
    signer: Signer | None = None  # None: with the key on its disk
    renewal: CertificateRenewal | None = None  # of its certificate, where it has one
    boot: str = ""  # names the time since its machine was switched on
    board: Board | None = None  # its machine; None: as the machine says


@dataclass(frozen=True, slots=True)
class TrainingSetup:
    """What the device trains on, and with what."""

    data: Dataset | Samples
    make_model: MakeModel
    train: Train | None = None  # None: in its own process
    trainer: Training | None = None  # that others train for a gateway; None: the device itself
    work: DoWork = Worker.work


@dataclass(frozen=True, slots=True)
class Scope:
    """Which broker, coordinator and run the agent works for, and until when."""

    broker: str = ""  # its address, for messages
    addresses: BrokerAddresses | None = None  # all that it tries, where its broker may move
    connect_timeout: float = 0.0  # seconds until it gives up a broker that never answered; 0: never
    coordinator: str | None = None  # its public key; None: the first that it hears
    models: str | None = None  # the public key that signs models, if it is another one
    once: bool = False  # it ends when a run is finished that was seen at work
    run: str | None = None  # with `once`: the run that it ends with


@dataclass(frozen=True, slots=True)
class Limits:
    """What its operator allows."""

    limit_mb: int = LIMIT_MB  # of a model
    allowed: Collection[str] = ()  # `package.module:name` of code that a job may name
    allowance: Allowance | None = None  # how much privacy may be spent
    own_models: int = OWN_MODELS  # that are kept
    own_models_mb: int = OWN_MODELS_MB


@dataclass(frozen=True, slots=True)
class RemoteAnswers:
    """How questions of the fleet's operator are answered."""

    allowed: Sequence[str] = ()  # by the device's own operator
    lines: Callable[[], Sequence[str]] = lambda: ()  # the last ones of its log that may be told
    examine: Callable[[Put], None] | None = None  # begins an examination, which comes back as `Diagnosed`


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """An examination has ended; `failure` says why it found nothing, for this device's own log."""

    findings: tuple[Examined, ...] = ()
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Hooks:
    """What the agent asks its owner, and tells it."""

    machine: Callable[[], WireVitals] | None = None  # how the machine fares, unless it is simulated
    unmet: Callable[[WireVitals], str] | None = None  # why it should not work now, where its operator has conditions
    speaks_for: Callable[[], int] = lambda: 1  # devices behind it, of a gateway
    heard: Callable[[JobState], None] = lambda _: None  # each state that counts
    new_id: Callable[[], str] = lambda: uuid.uuid4().hex  # for an installation without one
    entropy: Entropy = SYSTEM  # for seals
    remote: RemoteAnswers | None = None  # None: questions are passed over, and it does not announce that it takes any
