"""The run file, which an operator writes for the coordinator. What a device reads is in agent_file.py."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import ceil, inf
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    field_serializer,
    field_validator,
    model_serializer,
    model_validator,
)

from edgefl.base.device_labels import DEVICE, check_labels
from edgefl.base.errors import ConfigError, nearest
from edgefl.base.schedule import Schedule
from edgefl.base.where import Where, parse
from edgefl.job.config import buffering, choosing, local_training
from edgefl.job.config import evaluation as judging
from edgefl.job.config.budget import BudgetSection
from edgefl.job.config.evaluation import EvaluationSection
from edgefl.job.config.export import Export
from edgefl.job.config.page import Page
from edgefl.job.config.section import Section
from edgefl.job.transforms.listing import transforms_of
from edgefl.job.transforms.transform import Transform
from edgefl.learn.algorithms import registry
from edgefl.learn.contract import Algorithm, Stage, is_personal
from edgefl.learn.data import augment
from edgefl.learn.data.labels import REAL_TARGETS
from edgefl.learn.data.partition import Partition, part_names
from edgefl.learn.data.reading import Reading
from edgefl.learn.losses import LOSSES, loss, weighs
from edgefl.learn.robustness import Caps
from edgefl.learn.selection.base import Kind, LossBasedSelection, Selection
from edgefl.learn.selection.registry import selection
from edgefl.learn.tasks.kinds import KINDS, kind_of
from edgefl.system.hardware.profiles import PROFILES, Availability, Profile, assign
from edgefl.wire import codecs, signing
from edgefl.wire.address import without_password
from edgefl.wire.tls import Tls
from edgefl.wire.topics import SERVER, check_name

Cap = Annotated[float, Field(ge=1)] | Literal["off"]


def _known(table: Mapping[str, Any], name: str) -> str:
    if name not in table:
        raise ValueError(f"not known; {nearest(name, table)}")
    return name


class RunSection(Section):
    """What this run is called, how long it goes on, and what is told of it."""

    name: str = "run"  # letters, digits, `.`, `_`, `-`; also the name of its folder
    rounds: Annotated[int, Field(ge=1)] = 20  # how many there are
    seed: Annotated[int, Field(ge=0)] = 0  # the same file and seed give the same model, bit for bit
    target_accuracy: Annotated[float, Field(gt=0, le=1)] | None = None  # the run ends where it is reached
    target_loss: Annotated[float, Field(ge=0)] | None = None  # for regression, or beside the accuracy
    forgetting: bool = False  # also tell where each round forgets: in training, in merging
    folder: Path = Path("runs")  # the run's own folder is in this one
    from_: Annotated[str | None, Field(alias="from")] = None  # begins with the model of this run or file

    @field_validator("name")
    @classmethod
    def _fits_a_topic(cls, name: str) -> str:
        if name == SERVER:
            raise ValueError(f"'{name}' stands for the fleet's operator on the wire: give the run another name")
        return check_name("run.name", name)

    @model_validator(mode="after")
    def _is_another_run(self) -> "RunSection":
        if self.from_ == self.name:
            raise ValueError(
                f"run.from = '{self.name}' is this run itself: `edgefl coordinator extend` goes on with it, another"
                " run.name begins a new one"
            )
        return self

    @model_serializer(mode="wrap")
    def _as_in_the_file(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        table: dict[str, Any] = plain(self)
        return {("from" if key == "from_" else key): value for key, value in table.items()}  # a word of Python's own


class Learning(Section):
    """What is learnt: the network, the loss, and the data that the coordinator itself can see."""

    # What the coordinator evaluates on: a built-in name, "npz:path", "csv:path" or its like, "package.module:function",
    # "none".
    data: str | None = "digits"
    model: str = "mlp"  # one of the zoo (softmax, mlp, cnn, sensor_cnn, ...), or "package.module:factory"
    # What is learnt: "plain" is a class or some real numbers for each sample; docs/tasks.md has the others.
    kind: Literal["plain", "segmentation", "multilabel", "next_token", "autoencoder", "heads"] = "plain"
    loss: str = "cross_entropy"  # "squared_error" for real targets; kinds have their own; or "package.module:function"
    backend: Literal["onnx", "torch"] = "onnx"  # what devices train with
    partition: Partition | None = None  # simulation and trials: how one data set is divided among the devices
    public: Annotated[float, Field(ge=0, le=0.9)] = 0.0  # share kept at the coordinator, for methods that use such data
    sample: tuple[int, ...] | None = None  # the shape of one sample; needed where data is "none"
    classes: Annotated[int, Field(ge=0)] | tuple[str, ...] | None = None  # how many (0: real targets), or their names
    # How many real targets each sample has, or their names in the order of the model's outputs.
    targets: Annotated[int, Field(ge=1)] | Annotated[tuple[str, ...], Field(min_length=1)] | None = None

    outputs: dict[str, tuple[Annotated[int, Field(ge=1)], ...]] | None = None  # kind "heads": the shape of each output

    # "fleet": features are normalised by their mean and deviation over all devices, which are part of the model: it
    # takes raw units. Each device sends sums once, before the first round.
    normalise: Literal["none", "fleet"] = "none"
    # What classes weigh in the loss: by name or number, or "balanced" by the fleet's own counts: all weigh the same.
    class_weights: Literal["balanced"] | dict[str, Annotated[float, Field(gt=0, le=1000)]] | None = None
    # How devices change their samples at random before every round: "flip", "crop=2", "shift=4", "noise=0.1",
    # "scale=0.1", or "package.module:function".
    augment: tuple[str, ...] = ()

    @property
    def named_kind(self) -> str:
        """The kind of task, where it is none of the plain ones."""
        return "" if self.kind == "plain" else self.kind

    @property
    def describes(self) -> bool:
        """Whether devices are asked about their data before the first round."""
        return self.normalise == "fleet" or self.class_weights == "balanced"

    @property
    def class_count(self) -> int | None:
        """How many classes there are, where the file says so: none, where it names real targets."""
        if self.classes is None and self.targets is not None:
            return 0
        return len(self.classes) if isinstance(self.classes, tuple) else self.classes

    @property
    def target_count(self) -> int | None:
        """How many real targets there are, where the file says so."""
        return len(self.targets) if isinstance(self.targets, tuple) else self.targets

    @property
    def target_names(self) -> tuple[str, ...] | None:
        """What they are called, where the file says so."""
        return self.targets if isinstance(self.targets, tuple) else None

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """What they are called, where the file says so."""
        return self.classes if isinstance(self.classes, tuple) else None

    @model_validator(mode="before")
    @classmethod
    def _kinds_have_losses(cls, given: Any) -> Any:  # Any: not yet validated
        kind = given.get("kind") if isinstance(given, dict) else None
        return {"loss": KINDS[kind].loss} | given if kind in KINDS else given

    @field_validator("data")
    @classmethod
    def _none_is_a_word(cls, name: str | None) -> str | None:
        return None if name == "none" else name  # TOML has no null

    @field_validator("augment")
    @classmethod
    def _changes_are_known(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        augment.check(words)
        return words

    @field_validator("loss")
    @classmethod
    def _loss_exists(cls, name: str) -> str:
        if ":" in name:
            loss(name)
            return name
        return _known(LOSSES, name)

    @field_validator("augment", mode="before")
    @classmethod
    def _one_change_is_a_list(cls, given: Any) -> Any:  # Any: not yet validated
        return (given,) if isinstance(given, str) else given

    @model_validator(mode="after")
    def _kind_is_meant(self) -> "Learning":
        if self.kind == "plain" and (kind := kind_of(self.loss)) is not None:
            raise ValueError(f"task.loss = '{self.loss}' is for task.kind = '{kind}'; set that, or another loss")
        if self.outputs is not None and self.kind != "heads":
            raise ValueError("task.outputs are those of task.kind = 'heads'; leave them out")
        if self.kind == "plain":
            return self
        if self.data is None:
            raise ValueError(
                f"task.kind = '{self.kind}' reads its shapes off samples; give task.data, a few will do"
                " (evaluation.on = 'devices' still leaves judging to devices)"
            )
        if self.targets is not None:
            raise ValueError(f"task.targets is for plain tasks, and task.kind = '{self.kind}'; leave it out")
        if self.class_weights is not None:
            raise ValueError(
                f"task.class_weights weighs a sample by its class, and samples of task.kind = '{self.kind}' have no one"
                " class; leave it out, or weigh in a loss of your own (task.loss = 'package.module:function')"
            )
        if self.normalise != "none" and self.kind in {"autoencoder", "next_token"}:
            why = "samples are also the labels, which would stay in raw units: scale them in the data"
            why = why if self.kind == "autoencoder" else "token numbers have no mean: leave it out"
            raise ValueError(f"task.normalise = '{self.normalise}' with task.kind = '{self.kind}': {why}")
        return self

    @model_validator(mode="after")
    def _shape_is_known(self) -> "Learning":
        if self.data is None and (self.sample is None or self.class_count is None):
            raise ValueError(
                "with task.data = 'none', give task.sample (the shape of one sample) and task.classes, or task.targets"
            )
        if self.class_weights is not None and (self.class_count == 0 or not weighs(loss(self.loss))):
            raise ValueError(f"task.class_weights are for classes; task.loss = '{self.loss}' cannot weigh them")
        if self.targets is not None and self.class_count:
            raise ValueError(
                "task.targets names real numbers and task.classes classes; a run learns one or the other: leave one out"
            )
        if self.targets is not None and self.loss not in REAL_TARGETS and ":" not in self.loss:
            raise ValueError(f"task.targets are real numbers; set task.loss = '{REAL_TARGETS[0]}'")
        return self


Mode: TypeAlias = Literal["synchronous", "buffered"]


class RoundRules(Section):
    """Whom a round asks, and how long it waits."""

    cohort: Annotated[int, Field(ge=1)] | None = None  # devices that a round asks; all parts of a partition unless said
    quorum: Annotated[int, Field(ge=1)] | None = None  # answers that make a round; unless said, 0.8 of the cohort
    deadline: Annotated[float, Field(gt=0)] = 60.0  # seconds; with a quorum the round then goes on without the rest
    over_select: Annotated[float, Field(ge=1, le=10)] = 1.0  # 1.3 asks 30 % more devices and takes the fastest
    start_with: Annotated[int, Field(ge=1)] | None = None  # devices that must be there before the first round
    late: Literal["drop", "discount", "memory"] = "drop"  # what becomes of answers to a round that is over
    # Which devices are asked, by their labels and properties: "site == 'north' and memory_mb >= 900"; all unless said
    # (docs/guides/labels.md). Numbers above are of these devices.
    where: str | None = None
    # "buffered": rounds wait for no device. One that answers is replaced at once by one that gets the newest model, and
    # every `buffer` answers are merged, whichever model they began from (docs/guides/buffered.md). Its own keys follow:
    mode: Mode = "synchronous"
    concurrency: Annotated[int, Field(ge=1)] | None = None  # devices at work at once; all of a partition unless said
    buffer: Annotated[int, Field(ge=1)] | None = None  # answers that make a round; a quarter of concurrency unless said
    staleness: Annotated[int, Field(ge=0)] = 20  # an answer that began more rounds ago is refused

    @field_validator("where")
    @classmethod
    def _can_be_read(cls, where: str | None) -> str | None:
        if where is not None:
            parse(where, "rounds.where")
        return where


class Wire(Section):
    """How vectors travel: `codec` both ways, or a table with parameters for each."""

    codec: str = "float32"  # of updates and models
    up: dict[str, Any] | None = None  # updates: { codec = "topk", share = 0.01 }
    down: dict[str, Any] | None = None  # models, likewise
    compress: bool = False  # by zstd, on top of the codec
    seal: bool | Literal["auto"] = False  # answers, for the coordinator alone; auto: unless the broker is on loopback
    limit_mb: Annotated[int, Field(ge=1)] = 512  # the largest answer that is taken
    # A model of so much comes with its task, one of 1 MB with a call to all devices; 0: all are fetched.
    enclose_kb: Annotated[int, Field(ge=0, le=64)] = 64

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

    trust: Literal["devices", "majority"] = "devices"  # "majority": no single device matters; learn/robust/majority.py
    bounds: bool = True  # whether the three caps below hold; false: answers count as they are, as in papers
    weight_cap: Cap = 5.0  # times the usual weight of an answer, or "off"
    norm_cap: Cap = 4.0  # times the usual length of an update, or "off"
    extra_cap: Cap = 10.0  # times the usual length of an array that an algorithm sends beside it, or "off"
    speaks_for: Annotated[int, Field(ge=1, le=10_000)] = 1  # devices that one answer may be the mean of: a gateway's
    strikes: Annotated[int, Field(ge=1)] = 3  # messages that cannot be used, before quarantine
    quarantine_seconds: Annotated[float, Field(gt=0)] = 600.0  # how long a device is not heard then
    megabytes_per_minute: Annotated[float, Field(gt=0)] = 6000.0  # from one device
    messages_per_minute: Annotated[float, Field(gt=0)] = 600.0  # from one device, answers to a round aside

    def caps(self) -> Caps:
        """What one answer may do to the model."""
        if not self.bounds:
            return Caps()
        numbers = (inf if cap == "off" else cap for cap in (self.weight_cap, self.norm_cap, self.extra_cap))
        return Caps(*numbers)


class BrokerSection(Section):
    """Where they meet."""

    # "mqtts://host:8883" or "mqtt://..."; "embedded" is the fleet's own broker on this machine, or one for the demo.
    url: Annotated[str, Field(repr=False)] = "embedded"
    fleet: str = "default"  # its name: devices of other fleets at the same broker are not heard
    identity: Path | None = None  # the key that signs this fleet's models; ~/.local/state/edgefl/fleets/FLEET.key
    tls: Tls = Tls()  # files for mqtts://; those of the fleet on this machine unless said

    @field_validator("fleet")
    @classmethod
    def _fits_a_topic(cls, name: str) -> str:
        return check_name("broker.fleet", name)

    @field_serializer("url", when_used="json")  # as JSON it is written down: into journals, checkpoints, reports
    def _without_password(self, url: str) -> str:
        return str(without_password(url))


class Compute(Section):
    """What the coordinator computes with."""

    # Where the coordinator evaluates, distils, trains on public data and projects (SGC, memory). "cuda": a GPU, with
    # torch; "auto": one if there is one.
    device: Literal["auto", "cpu", "cuda"] = "cpu"
    threads: Annotated[int, Field(ge=1)] = 1  # of one forward or backward pass
    # Simulation only: where devices train; auto takes threads, and processes where devices train with torch.
    engine: Literal["auto", "threads", "processes", "ray"] = "auto"
    state_mb: Annotated[float, Field(ge=0)] = 256.0  # simulation only: of what devices keep; the rest goes to a file


class EmulatedFleet(Section):
    """Simulation only: what the devices are, and what goes wrong with them. See docs/simulation.md."""

    profiles: dict[str, Annotated[int, Field(ge=1)]] = {}  # how many of each; ideal devices unless said
    custom: dict[str, Profile] = {}  # profiles of your own, by name
    ms_per_step: Annotated[float, Field(gt=0)] | None = None  # of one mini-batch on a Raspberry Pi 4; else estimated
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0  # chance that an asked device breaks down in a round
    availability: Availability | None = None  # always online unless said
    trace: Path | None = None  # a csv file that says when each device is there, by `device`, `from` and `to`
    stragglers: Annotated[float, Field(ge=0, le=1)] = 0.0  # share of devices that make only some of the epochs
    # Labels by device: device-00 = { site = "north" }. Also of a real trial whose fleet has no members.
    labels: dict[str, dict[str, str]] = {}

    @field_validator("labels")
    @classmethod
    def _are_labels(cls, labels: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
        for name, of_device in labels.items():
            check_name("fleet.labels", name)
            check_labels(of_device)
        return labels

    def kinds_of(self, devices: Sequence[str], seed: int) -> dict[str, Profile]:
        """Return the profile of each of these devices: an ideal one, unless the file says otherwise."""
        if not self.profiles:
            return dict.fromkeys(devices, self.registry["ideal"])
        dealt = assign(self.profiles, tuple(devices), seed)
        return {name: self.registry[dealt[name]] for name in devices}

    def labels_of(self, devices: Sequence[str], seed: int) -> dict[str, dict[str, str]]:
        """Return the labels of each of these devices: its own go before those of its profile."""
        kinds = self.kinds_of(devices, seed)
        return {name: {**kinds[name].labels, **self.labels.get(name, {})} for name in devices}

    @property
    def registry(self) -> dict[str, Profile]:
        """Every profile that can be named."""
        return {**PROFILES, **self.custom}

    @property
    def takes_time(self) -> bool:
        """Whether it needs a virtual clock; stragglers alone do not."""
        return bool(self.profiles or self.dropout or self.availability or self.trace)

    @model_validator(mode="after")
    def _is_there_once(self) -> "EmulatedFleet":
        """A trace says when devices are there, and nothing else does."""
        hours = ["fleet.availability"] * (self.availability is not None)
        hours += [
            f"profile '{name}'" for name in self.profiles if name in self.registry and self.registry[name].availability
        ]
        if self.trace is not None and hours:
            raise ValueError(f"fleet.trace says when devices are there, and so does {hours[0]}; leave one of them out")
        return self

    @model_validator(mode="after")
    def _profiles_exist(self) -> "EmulatedFleet":
        for name in self.profiles:
            if name not in self.registry:
                raise ValueError(f"profile '{name}' is not known; {nearest(name, self.registry)}")
        return self


class RunFile(Section):
    """A whole run."""

    run: RunSection = RunSection()
    task: Learning = Learning()
    data: Reading = Reading()  # how task.data is read, if it is a table or a folder of images
    algorithm: dict[str, Any] = {"name": "fedavg"}  # what devices do, and what is done with their answers
    aggregation: tuple[dict[str, Any], ...] = ()  # the stages of your own pipeline; the algorithm's own unless said
    rounds: RoundRules = RoundRules()
    selection: dict[str, Any] = {"name": "uniform"}  # whom a round asks
    wire: Wire = Wire()
    privacy: dict[str, Any] | None = None  # noise on what a device sends; of some algorithms
    evaluation: EvaluationSection = EvaluationSection()
    budget: BudgetSection = BudgetSection()
    broker: BrokerSection = BrokerSection()
    compute: Compute = Compute()
    guards: Guards = Guards()
    page: Page = Page()
    fleet: EmulatedFleet | None = None
    export: Export = Export()
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
        from edgefl.job.config import privacy as section  # noqa: PLC0415 - an agent does without it

        if self.privacy is not None:
            section.check(self.privacy, plain, stages, self.rounds.late)
            section.check_statistics(self.task.describes, self.task.class_weights is not None)
        section.check_selection(self.make_selection(), self.make_algorithm())
        section.check_proof(self.make_algorithm(), self.task.loss)
        data, forgetting = self.task.data is not None, self.run.forgetting
        judging.check(self.evaluation, data=data, private=self._private, forgetting=forgetting)
        from edgefl.learn.algorithms import pipeline  # noqa: PLC0415 - an agent does without it too

        pipeline.check(plain, stages)
        buffering.check(self.rounds, plain, stages, forgetting=forgetting)
        local_training.check(self.make_algorithm(), augmented=bool(self.task.augment))
        pipeline.check_votes(stages, self.cohort, self.rounds.late)
        pipeline.check_memory(stages, self.cohort)
        from edgefl.job.config import hiding  # noqa: PLC0415 - and without this

        hiding.check(self, stages)
        cohort, quorum = ("concurrency", "buffer") if self.buffered else ("cohort", "quorum")
        self._labels_are_of_devices()
        if getattr(self.rounds, cohort) is None and self.parts is None:
            only = (
                "only a partition gives it a default" if self.where is None else "rounds.where asks some of them only"
            )
            raise ValueError(f"{buffering.UNSAID[cohort]} ({only})")
        if self.quorum > self.cohort:
            too_many = buffering.TOO_MANY[quorum].format(self.quorum, self.cohort)
            raise ValueError(f"{too_many}; lower it to {self.cohort}")
        if not self.buffered and self.rounds.start_with is not None and self.rounds.start_with < self.quorum:
            raise ValueError(
                f"rounds.start_with = {self.rounds.start_with} is smaller than rounds.quorum = {self.quorum};"
                f" raise it to {self.quorum}"
            )
        names = [table.get("name") for table in self.aggregation]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"aggregation names '{twice[0]}' twice; a stage keeps its state under its name")
        held = self.task.partition
        if held:
            most = held.devices if self.parts is None else self.parts
            of = "the number of devices that rounds.where means" if most < held.devices else "task.partition.devices"
            for key, value in (("start_with", self.rounds.start_with or 0), (cohort, self.cohort)):
                if value > most:
                    raise ValueError(f"rounds.{key} = {value} is larger than {of} = {most}; lower it to {most}")
        profiles = self.fleet.profiles if self.fleet else {}
        if profiles and held and sum(profiles.values()) != held.devices:
            raise ValueError(
                f"fleet.profiles name {sum(profiles.values())} devices, task.partition.devices = {held.devices};"
                " make them the same"
            )
        return self

    def _labels_are_of_devices(self) -> None:
        """Raise `ValueError` if a label is of no device, or if `rounds.where` means none of those there are."""
        held = self.task.partition
        names = part_names(held.devices) if held else ()
        for name in self.fleet.labels if self.fleet and held else ():
            if name not in names:
                raise ValueError(f"fleet.labels.{name}: there is no such device; {nearest(name, names[:1000])}")
        if self.where is not None and self.parts == 0:
            raise ValueError(f'rounds.where = "{self.where.text}" means none of the {len(names)} devices')

    @cached_property
    def where(self) -> Where | None:
        """Which devices the run asks; None: all that may take part."""
        return None if self.rounds.where is None else parse(self.rounds.where, "rounds.where")

    @cached_property
    def parts(self) -> int | None:
        """How many devices of a divided data set the run asks; None where this file alone does not say it."""
        held = self.task.partition
        if held is None or self.where is None:
            return held.devices if held else None
        labels = (self.fleet or EmulatedFleet()).labels_of(part_names(held.devices), self.run.seed)
        if not self.where.names() <= {DEVICE}.union(*labels.values()):
            return None  # it asks for what devices measure, or for labels of the fleet's members
        return sum(self.where.matches({DEVICE: name, **labels[name]}) for name in labels)

    @property
    def buffered(self) -> bool:
        """Whether rounds wait for no device."""
        return self.rounds.mode == "buffered"

    @property
    def cohort(self) -> int:
        """How many devices a round asks; where rounds wait for no device, how many are at work at once."""
        given = self.rounds.concurrency if self.buffered else self.rounds.cohort
        return given or self.parts or 1

    @property
    def quorum(self) -> int:
        """How many answers make a round; four fifths of the cohort unless said, a quarter of those who are at work."""
        if self.buffered:
            return self.rounds.buffer or ceil(self.cohort / 4)
        return self.rounds.quorum or ceil(0.8 * self.cohort)

    @property
    def start_with(self) -> int | None:
        """How many devices must be there before the first round opens: in a trial all of them, else who comes."""
        return self.rounds.start_with or self.parts

    @cached_property
    def judge(self) -> judging.Judge:
        """Who evaluates the model."""
        return self.evaluation.judge(data=self.task.data is not None, private=self._private)

    @property
    def judged_by_devices(self) -> bool:
        """Whether devices set data aside, and evaluate the model on them."""
        return self.judge != "coordinator"

    @property
    def cautions(self) -> tuple[str, ...]:
        """What a reader of the figures of this run should know, a line each."""
        own = is_personal(self.make_algorithm())
        unjudged = judging.own_models_unjudged(str(self.algorithm["name"]), self.judge) if own else ""
        stages, held = self.make_stages(), self.task.partition
        waits = buffering.ages_unused(self.rounds.mode, stages)
        everybody = held is not None and self.cohort >= (self.parts or held.devices) and not self.buffered
        twice = choosing.counted_twice(self.make_selection(), self.make_algorithm(), stages, everybody=everybody)
        return tuple(filter(None, (self.decided_by_test_data, unjudged, waits, twice)))

    @property
    def decided_by_test_data(self) -> str:
        """What to say of this run if its test data decide when it ends; empty where they only judge."""
        targets = {"target_accuracy": self.run.target_accuracy, "target_loss": self.run.target_loss}
        return judging.decided_by_test_data(self.evaluation, self.judge, **targets)

    def refuse_simulated_only(self) -> None:
        """Refuse what a real fleet cannot do: its devices train on all they have, and what they spend is not known."""
        keys = {"evaluation.validation": self.evaluation.validation, "budget": self.budget != BudgetSection() or None}
        for key, value in keys.items():
            if value is not None:
                raise ConfigError(f"{key} is for simulations: leave it out of the run file of a fleet")

    @cached_property
    def schedule(self) -> Schedule:
        """What each round is for."""
        return Schedule(self.run.rounds, self.judged_by_devices, self.task.describes)

    @cached_property
    def transforms(self) -> tuple[Transform, ...]:
        """What is done to updates between training and stages, in the order of the device (edgefl/job/transforms)."""
        return transforms_of(self)

    @cached_property
    def _private(self) -> bool:
        """Whether the algorithm promises privacy; found out once, as those above: every answer of a run asks."""
        from edgefl.learn.privacy.private import Private  # noqa: PLC0415 - an agent does without it

        algorithm = self.make_algorithm()
        return isinstance(algorithm, Private) and algorithm.privacy is not None

    def __copy__(self) -> "RunFile":
        """A copy may be given another algorithm, and other rounds, of which nothing is known yet."""
        copied = super().__copy__()
        for name in ("_private", "judge", "schedule", "loss_asked", "transforms", "where", "parts"):
            copied.__dict__.pop(name, None)
        return copied

    def code(self) -> list[str]:
        """What devices would have to import because this file names it by its place, `package.module:name`."""
        wire = self.wire.up or {}, self.wire.down or {}
        named = [self.algorithm.get("name"), self.task.loss, self.wire.codec, *(table.get("codec") for table in wire)]
        named += self.task.augment
        network = [self.task.model] if self.task.backend == "torch" else []
        return [name for name in dict.fromkeys([*network, *named]) if isinstance(name, str) and ":" in name]

    def make_algorithm(self) -> Algorithm:
        privacy = {} if self.privacy is None else {"privacy": self.privacy}
        augmented = {"augment": self.task.augment} if self.task.augment else {}
        return registry.algorithm({**self.algorithm, **privacy, **augmented})

    @cached_property
    def loss_asked(self) -> Kind | None:
        """Which loss devices are asked for with every model, where the selection looks at it."""
        chosen = self.make_selection()
        return chosen.loss if isinstance(chosen, LossBasedSelection) else None

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
        from edgefl.learn.robust.majority import majority  # noqa: PLC0415 - an agent does without it

        return majority(stages, self.cohort)
