"""The two files an operator writes: a run file for the coordinator, an agent file for each device."""

import socket
from collections.abc import Mapping
from math import ceil, inf
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_serializer, field_validator, model_validator

from edgefl.algorithms import registry
from edgefl.contract import Algorithm, Stage
from edgefl.data.partition import Partition
from edgefl.errors import ConfigError, nearest
from edgefl.hardware.profiles import PROFILES, Availability, Profile
from edgefl.losses import LOSSES, loss
from edgefl.protocol import codecs, signing
from edgefl.protocol.address import without_password
from edgefl.protocol.tls import Tls
from edgefl.protocol.topics import check_name
from edgefl.robustness import Caps
from edgefl.selection.base import Selection
from edgefl.selection.registry import selection

LIMIT_MB = 256  # of a model, on a device

Cap = Annotated[float, Field(ge=1)] | Literal["off"]


class Section(BaseModel):
    """A table of the file: frozen, and strict about its keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, coerce_numbers_to_str=True)


def _known(table: Mapping[str, Any], name: str) -> str:
    if name not in table:
        raise ValueError(f"not known; {nearest(name, table)}")
    return name


class Run(Section):
    """What this run is called, how long it goes on, and what is told of it."""

    name: str = "run"
    rounds: Annotated[int, Field(ge=1)] = 20
    seed: Annotated[int, Field(ge=0)] = 0
    target_accuracy: Annotated[float, Field(gt=0, le=1)] | None = None
    target_loss: Annotated[float, Field(ge=0)] | None = None  # on the test data; for regression, or beside the accuracy
    forgetting: bool = False  # also tell where each round forgets: in training, in merging
    folder: Path = Path("runs")

    @field_validator("name")
    @classmethod
    def _fits_a_topic(cls, name: str) -> str:
        return check_name("run.name", name)


class Learning(Section):
    """What is learnt: the network, the loss, and the data that the coordinator itself can see."""

    data: str | None = "digits"
    model: str = "mlp"
    loss: str = "cross_entropy"
    backend: Literal["onnx", "torch"] = "onnx"  # what devices train with
    partition: Partition | None = None
    public: Annotated[float, Field(ge=0, le=0.9)] = 0.0
    sample: tuple[int, ...] | None = None
    classes: Annotated[int, Field(ge=0)] | tuple[str, ...] | None = None  # how many (0: real targets), or their names

    @property
    def class_count(self) -> int | None:
        """How many classes there are, where the file says so."""
        return len(self.classes) if isinstance(self.classes, tuple) else self.classes

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """What they are called, where the file says so."""
        return self.classes if isinstance(self.classes, tuple) else None

    @field_validator("data")
    @classmethod
    def _none_is_a_word(cls, name: str | None) -> str | None:
        return None if name == "none" else name  # TOML has no null

    @field_validator("loss")
    @classmethod
    def _loss_exists(cls, name: str) -> str:
        if ":" in name:
            loss(name)
            return name
        return _known(LOSSES, name)

    @model_validator(mode="after")
    def _shape_is_known(self) -> "Learning":
        if self.data is None and (self.sample is None or self.classes is None):
            raise ValueError("with task.data = 'none', give task.sample (the shape of one sample) and task.classes")
        return self


class RoundRules(Section):
    """Whom a round asks, and how long it waits."""

    cohort: Annotated[int, Field(ge=1)] | None = None
    quorum: Annotated[int, Field(ge=1)] | None = None
    deadline: Annotated[float, Field(gt=0)] = 60.0
    over_select: Annotated[float, Field(ge=1, le=10)] = 1.0
    start_with: Annotated[int, Field(ge=1)] | None = None
    late: Literal["drop", "discount", "memory"] = "drop"


class Wire(Section):
    """How vectors travel: `codec` both ways, or a table with parameters for each."""

    codec: str = "float32"
    up: dict[str, Any] | None = None  # updates: { codec = "topk", share = 0.01 }
    down: dict[str, Any] | None = None  # models
    compress: bool = False
    seal: bool | Literal["auto"] = False  # answers, for the coordinator alone; auto: unless the broker is on loopback
    limit_mb: Annotated[int, Field(ge=1)] = 512
    enclose_kb: Annotated[int, Field(ge=0, le=64)] = 64  # a model of so much comes with its task; 0: all are fetched

    @field_validator("codec")
    @classmethod
    def _codec_exists(cls, name: str) -> str:
        return name if ":" in name else _known(codecs.REGISTRY, name)

    @model_validator(mode="after")
    def _goes_both_ways(self) -> "Wire":
        self.up_codec(), self.down_codec()
        return self

    def seals(self, *, local: bool) -> bool:
        """Whether answers are sealed, at a broker on loopback or elsewhere."""
        return not local if self.seal == "auto" else self.seal

    def up_codec(self) -> codecs.Codec:
        """How updates travel."""
        return self._codec("up", self.up)

    def down_codec(self) -> codecs.Codec:
        """How models travel."""
        return self._codec("down", self.down)

    def _codec(self, way: str, table: dict[str, Any] | None) -> codecs.Codec:
        where = "wire" if table is None else f"wire.{way}"
        return codecs.codec({"codec": self.codec, **(table or {})}, where, way)


class Guards(Section):
    """What the coordinator puts up with."""

    trust: Literal["devices", "majority"] = "devices"  # "majority": no single device matters; edgefl/robust/majority.py
    weight_cap: Cap = 5.0  # times the usual weight of an answer, or "off"
    norm_cap: Cap = 4.0  # times the usual length of an update, or "off"
    extra_cap: Cap = 10.0  # times the usual length of an array that an algorithm sends beside it, or "off"
    strikes: Annotated[int, Field(ge=1)] = 3  # messages that cannot be used, before quarantine
    quarantine_seconds: Annotated[float, Field(gt=0)] = 600.0
    megabytes_per_minute: Annotated[float, Field(gt=0)] = 6000.0  # from one device
    messages_per_minute: Annotated[float, Field(gt=0)] = 600.0  # from one device, answers to a round aside

    def caps(self) -> Caps:
        """What one answer may do to the model."""
        numbers = (inf if cap == "off" else cap for cap in (self.weight_cap, self.norm_cap, self.extra_cap))
        return Caps(*numbers)


class Broker(Section):
    """Where they meet."""

    url: Annotated[str, Field(repr=False)] = "embedded"
    fleet: str = "default"
    identity: Path | None = None  # the key that signs this fleet's models; ~/.local/state/edgefl/fleets/FLEET.key
    tls: Tls = Tls()

    @field_validator("fleet")
    @classmethod
    def _fits_a_topic(cls, name: str) -> str:
        return check_name("broker.fleet", name)

    @field_serializer("url", when_used="json")  # as JSON it is written down: into journals, checkpoints, reports
    def _without_password(self, url: str) -> str:
        return str(without_password(url))


class Compute(Section):
    """What the coordinator computes with."""

    device: Literal["auto", "cpu", "cuda"] = "cpu"
    threads: Annotated[int, Field(ge=1)] = 1


class EmulatedFleet(Section):
    """Simulation only: what the devices are, and what goes wrong with them. See docs/simulation.md."""

    profiles: dict[str, Annotated[int, Field(ge=1)]] = {}  # how many of each; ideal devices unless said
    custom: dict[str, Profile] = {}  # profiles of your own, by name
    ms_per_step: Annotated[float, Field(gt=0)] | None = None  # of one mini-batch on a Raspberry Pi 4; else estimated
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0  # chance that an asked device breaks down in a round
    availability: Availability | None = None  # always online unless said
    stragglers: Annotated[float, Field(ge=0, le=1)] = 0.0  # share of devices that make only some of the epochs

    @property
    def registry(self) -> dict[str, Profile]:
        """Every profile that can be named."""
        return {**PROFILES, **self.custom}

    @property
    def takes_time(self) -> bool:
        """Whether it needs a virtual clock; stragglers alone do not."""
        return bool(self.profiles or self.dropout or self.availability)

    @model_validator(mode="after")
    def _profiles_exist(self) -> "EmulatedFleet":
        for name in self.profiles:
            if name not in self.registry:
                raise ValueError(f"profile '{name}' is not known; {nearest(name, self.registry)}")
        return self


class RunFile(Section):
    """A whole run."""

    run: Run = Run()
    task: Learning = Learning()
    algorithm: dict[str, Any] = {"name": "fedavg"}
    aggregation: tuple[dict[str, Any], ...] = ()
    rounds: RoundRules = RoundRules()
    selection: dict[str, Any] = {"name": "uniform"}  # whom a round asks; edgefl/selection has one file for each
    wire: Wire = Wire()
    privacy: dict[str, Any] | None = None  # edgefl/config/privacy.py knows its keys
    broker: Broker = Broker()
    compute: Compute = Compute()
    guards: Guards = Guards()
    fleet: EmulatedFleet | None = None
    devices: dict[str, str] = {}  # name = "key": only these are heard; `edgefl agent key agent.toml` prints it

    @field_validator("devices")
    @classmethod
    def _are_keys(cls, devices: dict[str, str]) -> dict[str, str]:
        for name, key in devices.items():
            check_name("devices", name)
            try:
                signing.key_bytes(key)
            except ValueError:
                raise ConfigError(
                    f'devices.{name} = "{key}": this is no key; `edgefl agent key agent.toml` prints it on the device'
                ) from None
        return devices

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> "RunFile":
        plain = registry.algorithm(self.algorithm)
        stages = self._defended(tuple(registry.stage(table) for table in self.aggregation) or plain.stages())
        self.make_selection()
        from edgefl.config import privacy as section  # noqa: PLC0415 - an agent does without it

        if self.privacy is not None:
            section.check(self.privacy, plain, stages, self.rounds.late)
        section.check_proof(self.make_algorithm(), self.task.loss)
        from edgefl.algorithms import pipeline  # noqa: PLC0415 - an agent does without it too

        pipeline.check(plain, stages)
        pipeline.check_votes(stages, self.cohort, self.rounds.late)
        if self.rounds.cohort is None and self.task.partition is None:
            raise ValueError("rounds.cohort: say how many devices a round asks (only a partition gives it a default)")
        if self.quorum > self.cohort:
            raise ValueError(
                f"rounds.quorum = {self.quorum} is larger than rounds.cohort = {self.cohort}; lower it to {self.cohort}"
            )
        if self.rounds.start_with is not None and self.rounds.start_with < self.quorum:
            raise ValueError(
                f"rounds.start_with = {self.rounds.start_with} is smaller than rounds.quorum = {self.quorum};"
                f" raise it to {self.quorum}"
            )
        names = [table.get("name") for table in self.aggregation]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"aggregation names '{twice[0]}' twice; a stage keeps its state under its name")
        held = self.task.partition
        if held and (self.rounds.start_with or 0) > held.devices:
            raise ValueError(
                f"rounds.start_with = {self.rounds.start_with} is larger than task.partition.devices ="
                f" {held.devices}; lower it to {held.devices}"
            )
        if held and self.cohort > held.devices:
            raise ValueError(
                f"rounds.cohort = {self.cohort} is larger than task.partition.devices = {held.devices};"
                f" lower it to {held.devices}"
            )
        profiles = self.fleet.profiles if self.fleet else {}
        if profiles and held and sum(profiles.values()) != held.devices:
            raise ValueError(
                f"fleet.profiles name {sum(profiles.values())} devices, task.partition.devices = {held.devices};"
                " make them the same"
            )
        return self

    @property
    def cohort(self) -> int:
        """How many devices a round asks."""
        held = self.task.partition
        return self.rounds.cohort or (held.devices if held else 1)

    @property
    def quorum(self) -> int:
        """How many answers make a round; four fifths of the cohort unless said."""
        return self.rounds.quorum or ceil(0.8 * self.cohort)

    @property
    def start_with(self) -> int | None:
        """How many devices must be there before the first round opens: in a trial all of them, else who comes."""
        held = self.task.partition
        return self.rounds.start_with or (held.devices if held else None)

    def code(self) -> list[str]:
        """What devices would have to import because this file names it by its place, `package.module:name`."""
        wire = self.wire.up or {}, self.wire.down or {}
        named = [self.algorithm.get("name"), self.task.loss, self.wire.codec, *(table.get("codec") for table in wire)]
        network = [self.task.model] if self.task.backend == "torch" else []
        return [name for name in dict.fromkeys([*network, *named]) if isinstance(name, str) and ":" in name]

    def make_algorithm(self) -> Algorithm:
        return registry.algorithm(
            self.algorithm if self.privacy is None else {**self.algorithm, "privacy": self.privacy}
        )

    def make_selection(self) -> Selection:
        return selection(self.selection)

    def make_stages(self) -> tuple[Stage, ...]:
        """The stages of the file, or else the algorithm's own; with the defence of `guards.trust`."""
        return self._defended(
            tuple(registry.stage(table) for table in self.aggregation) or self.make_algorithm().stages()
        )

    def _defended(self, stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
        if self.guards.trust == "devices":
            return stages
        from edgefl.robust.majority import majority  # noqa: PLC0415 - an agent does without it

        return majority(stages)


class Identity(Section):
    """Who this device is, and where it finds the others."""

    id: str = Field(default_factory=lambda: socket.gethostname().split(".")[0])
    broker: Annotated[str, Field(repr=False)] = "mqtt://localhost:1883"
    fleet: str = "default"
    folder: Path = Path("~/.local/state/edgefl")
    connect_timeout: Annotated[float, Field(ge=0)] = 30.0  # seconds; 0 waits for ever
    coordinator: str | None = None  # the key whose models are trained on; unless said (loopback only), the first seen
    limit_mb: Annotated[int, Field(ge=1)] = LIMIT_MB  # the largest model that is fetched
    tls: Tls = Tls()

    @field_serializer("broker", when_used="json")
    def _without_password(self, url: str) -> str:
        return str(without_password(url))

    @field_validator("id", "fleet")
    @classmethod
    def _fits_a_topic(cls, name: str, info: ValidationInfo) -> str:
        return check_name(f"agent.{info.field_name}", name)

    @field_validator("coordinator")
    @classmethod
    def _is_a_key(cls, key: str | None) -> str | None:
        if key is not None:
            signing.key_bytes(key)
        return key


class LocalData(Section):
    """The device's own data. `partition` and what follows are for trials: take part `part` of a divided set."""

    source: str = "digits"
    classes: tuple[str, ...] | None = None  # the names of text labels in the run's order, where the run has no names
    partition: Partition | None = None
    part: Annotated[int, Field(ge=0)] = 0
    public: Annotated[float, Field(ge=0, le=0.9)] = 0.0
    seed: int = 0


class LocalCompute(Section):
    """What this device computes with."""

    backend: Literal["auto", "torch", "onnx"] = "auto"
    device: Literal["auto", "cpu", "cuda"] = "cpu"
    threads: Annotated[int, Field(ge=1)] = 1
    memory_mb: Annotated[int, Field(ge=1)] = 1024  # what training may need here; a larger graph is declined
    box: bool = True  # graphs run in a process that can do nothing else; False: in the agent's own
    task_seconds: Annotated[float, Field(gt=0)] = 21_600  # after so long a task is given up, whatever became of it
    # "package.module:name" that a job may name: networks (with torch), algorithms, losses, codecs. Ours it always may.
    factories: tuple[str, ...] = ()


class AgentFile(Section):
    """A whole agent."""

    agent: Identity = Identity()
    data: LocalData = LocalData()
    compute: LocalCompute = LocalCompute()
