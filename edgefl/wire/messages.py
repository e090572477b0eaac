"""What is said: the headers of frames, and the JSON of retained topics. Pydantic checks everything at the door.

Keys that a newer peer adds are ignored; everything we rely on is required and bounded.
"""

from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    FailFast,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from edgefl.base.errors import WireError
from edgefl.base.printable import printable
from edgefl.base.schedule import Purpose
from edgefl.base.vector import Layout
from edgefl.base.vitals import VitalSigns
from edgefl.learn.tasks import form
from edgefl.learn.tasks.fields import width
from edgefl.learn.tasks.form import Form
from edgefl.wire import frames
from edgefl.wire.frames import HEADER_LIMIT, Frame, Unread, Unseal, pack
from edgefl.wire.topics import NAME, PROTOCOL

Name = Annotated[str, Field(pattern=f"^{NAME}$")]  # may become part of a path or a topic
# Of a tensor: one line, never a path. Its length stands beside the pattern: in it, the automaton takes 2 MB.
Key = Annotated[str, Field(max_length=200, pattern=r"^[^\p{Cc}\p{Cf}\p{Zl}\p{Zp}]*$")]
Named = Annotated[str, Field(pattern=f"^{NAME}(:{NAME})?$")]  # a word, or `package.module:name`: code to look up
TEXT = 2000  # characters
Text = Annotated[str, Field(max_length=TEXT), AfterValidator(printable)]  # for people: one line, whatever came
LABEL = 255  # characters
Label = Annotated[str, Field(max_length=LABEL), AfterValidator(printable)]  # a short one, quoted in others
LINE = 500  # characters
Line = Annotated[str, Field(max_length=LINE), AfterValidator(printable)]  # of a log
REPLY = 1 << 16  # bytes of the frame of a reply
MOST_FINDINGS, MOST_LINES = 100, 200  # in one reply
MOST_TENSORS = 4096  # in one frame
USUAL = 256  # tensors of a model
ENCLOSED = 1 << 16  # bytes of a model that comes with its task, and of its manifest
CALLED = 1 << 20  # bytes of a model that comes with the call of a round
MOST_CALLED, SLOT = 4096, 36  # devices in one call, and bytes that are for each alone (calls.py)
ADDRESSES = 8  # of a broker, that a device tries
INDEXES = 16384  # chunks that are asked for at once: those of a frame of 2 GB
MOST_ROUNDS = 2**31
Round = Annotated[int, Field(ge=0, le=MOST_ROUNDS)]
Count = Annotated[int, Field(ge=0, le=2**53)]  # of anything: JSON would take thousands of digits
Version = Annotated[int, Field(ge=0, le=2**31)]
Speaks = Annotated[int, Field(ge=1, le=10_000)]  # how many devices stand behind a name
SealingKey = Annotated[str, Field(pattern=r"^x25519:[A-Za-z0-9_-]{43}$")]
Digest = Annotated[bytes, Field(min_length=32, max_length=32)]


class _WireModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_bytes="base64", defer_build=True)
    limit: ClassVar[int] = 1 << 14  # bytes of its JSON


class WireVitals(_WireModel, VitalSigns):
    """How a device's machine fares, as far as the machine tells; it comes with what is sent anyway."""


# ---- retained JSON -------------------------------------------------------------------------------------------------


class Presence(_WireModel):
    """A device is there, or (as its last will) is not. `birth` grows with every start of the same installation."""

    protocol: Version = PROTOCOL
    online: bool
    installation: Name
    birth: Count
    host: Label = ""
    version: Label = ""
    samples: Count = 0
    back_end: Label = ""
    site: Annotated[str, Field(pattern=f"^({NAME})?$")] = ""  # whose broker it is at, if that is bridged to another
    speaks_for: Speaks = 1  # devices behind it, of a gateway
    resting: Label = ""  # why it is not there though its agent runs: its operator's conditions, or no usable data
    trouble: Label = ""  # why its newest data cannot be used: it trains on older ones, or (not online) on none
    samples_from: Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)] | None = None  # when the older were read
    moves: Count = 0  # the number of the last `addresses` that it was told
    concise: bool = False  # it can be asked in one call to all, and its next task will do as a receipt
    arch: Label = ""  # the kind of its processor, and its memory in MiB: with `version`, `back_end` and `samples`
    memory_mb: Annotated[int, Field(ge=0, le=2**40)] | None = None  # what `rounds.where` can ask of its own word
    answers: bool = False  # it understands a request, whatever it then allows
    vitals: WireVitals | None = None  # when it said so


class JobState(_WireModel):
    """Where a job stands; the first thing a device reads."""

    protocol: Version = PROTOCOL
    job: Name
    run_id: Name  # a job's name may be used again, this id never is
    phase: Literal["gathering", "training", "finished"]
    round: Round
    spread: Annotated[float, Field(ge=0, le=600, allow_inf_nan=False)] = 0.0  # seconds for a lost fleet to come back in


class Tensor(_WireModel):
    """One array in a frame's body: `kind` is a codec's name, or `raw` for other types than float32."""

    name: Key
    kind: Name
    dtype: Annotated[Key, Field(max_length=16)] = "<f4"
    shape: Annotated[tuple[Annotated[int, Field(ge=0, le=2**40)], ...], Field(max_length=16), FailFast()]
    bytes: Annotated[int, Field(ge=0)]


# The first mistake is enough: a list of them would be a thousand times as large as the message.
Tensors: TypeAlias = Annotated[tuple[Tensor, ...], Field(max_length=MOST_TENSORS), FailFast()]


class Shape(_WireModel):
    """A layout, on the wire."""

    names: Annotated[tuple[Key, ...], FailFast()]
    shapes: Annotated[tuple[tuple[Annotated[int, Field(ge=0, le=2**31)], ...], ...], FailFast()]
    buffers: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _is_a_layout(self) -> "Shape":
        self.layout()
        return self

    @classmethod
    def of(cls, layout: Layout) -> "Shape":
        return cls(names=layout.names, shapes=layout.shapes, buffers=layout.buffers)

    def layout(self) -> Layout:
        about = self.names, self.shapes, self.buffers
        return _layout(*about) if len(self.names) <= USUAL else Layout(*about)


@lru_cache(8)  # the same one comes with every model of a job; what is kept stays small
def _layout(names: tuple[str, ...], shapes: tuple[tuple[int, ...], ...], buffers: int) -> Layout:
    return Layout(names, shapes, buffers)


class RowField(_WireModel):
    """An array of a row: see `edgefl.learn.tasks.fields.Field`."""

    name: Annotated[str, Field(max_length=64)]
    shape: Annotated[tuple[Annotated[int, Field(ge=1, le=1 << 24)], ...], Field(max_length=8)]
    whole: bool
    learnt: bool


class RowForm(_WireModel):
    """What rows of a task are: see `edgefl.learn.tasks.form.Form`."""

    kind: Literal["", "segmentation", "multilabel", "next_token", "autoencoder", "heads"]
    inputs: Annotated[tuple[RowField, ...], Field(max_length=64)] = ()
    labels: Annotated[tuple[RowField, ...], Field(max_length=64)] = ()
    outputs: Annotated[tuple[RowField, ...], Field(max_length=64)] = ()


class Manifest(_WireModel):
    """Everything a device must know to work on a model: where its bytes are, how it is shaped, what to do with it."""

    limit: ClassVar[int] = 1 << 22  # its layout names every tensor

    protocol: Version = PROTOCOL
    job: Name
    run_id: Name
    round: Round
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    size: Annotated[int, Field(ge=1)]  # bytes of the frame
    layout: Shape
    algorithm: dict[str, Any]
    network: Text  # the zoo name or factory that builds it
    sample: tuple[int, ...]
    classes: int
    loss: Named
    codec: Name | dict[str, Any]  # of its answers: a name, or a table where it has parameters
    down: Name | dict[str, Any] = "float32"  # of the model itself
    seed: int
    compress: bool = False
    class_names: Annotated[tuple[Label, ...], Field(max_length=100_000), FailFast()] = ()  # where a run names its own
    targets: Annotated[int, Field(ge=1, le=1 << 24)] = 1  # numbers of a label, where there are no classes
    target_names: Annotated[tuple[Label, ...], Field(max_length=100_000), FailFast()] = ()
    rows: RowForm | None = None  # of a task that is not plain: how rows of samples, labels and outputs are read

    @property
    def form(self) -> Form:
        """The same as the task has it; what kind of task it is was not looked at (`tasks.kinds.checked`)."""
        return form.read(None if self.rows is None else self.rows.model_dump())

    @property
    def outputs(self) -> int:
        """How many numbers the network gives for a sample."""
        return width(self.form.outputs) or self.classes or self.targets


# ---- headers of frames ---------------------------------------------------------------------------------------------


class Broadcast(_WireModel):
    """The model of a round, and what the plan added; the same for every device."""

    kind: Literal["model"] = "model"
    job: Name
    round: Round
    tensors: Tensors


class Graphs(_WireModel):
    """The ONNX bundle of a job; the body is the bundle."""

    kind: Literal["graphs"] = "graphs"
    job: Name


class Enclosed(_WireModel):
    """A small model that comes with its task; it stands at the broker as well, for agents that do not look here."""

    manifest: Annotated[bytes, Field(max_length=ENCLOSED)]
    frame: Annotated[bytes, Field(max_length=ENCLOSED)]


class Assignment(_WireModel):
    """A device is asked to work on a round."""

    kind: Literal["task"] = "task"
    job: Name
    run_id: Name
    round: Round
    attempt: Annotated[int, Field(ge=0)]
    model: Name
    previous: Name | None = None
    graphs: Name | None = None  # the ONNX bundle, where devices train with onnxruntime
    overtime: bool = False  # an answer is welcome even when the round is over
    counted: Round = 0  # the last round this device's answer was merged in: stands in for a lost receipt
    batches: Annotated[int, Field(ge=1)] | None = None
    seconds: Annotated[float, Field(gt=0)] | None = None
    purpose: Purpose = "train"
    evaluates: Annotated[int, Field(ge=1, le=2**53)] | None = (
        None  # counts are asked for, of at least this many samples
    )
    held_back: Annotated[float, Field(gt=0, lt=1)] | None = None  # share of a trial's part that is not trained on
    installation: Name | None = None  # which device is meant, when two share an id
    enclosed: Enclosed | None = None  # the model, if it is small: to fetch it would cost more than its bytes
    seal: SealingKey | None = None  # whom the answer is sealed for; None: it is sent open


class Call(_WireModel):
    """All devices of a round are asked at once; the body is the model, if it is small. See `calls.py`."""

    kind: Literal["call"] = "call"
    task: Assignment  # what they share
    number: Annotated[int, Field(ge=0, lt=2**64)]  # never the same twice
    slots: Annotated[bytes, Field(min_length=SLOT, max_length=SLOT * MOST_CALLED)]  # what each is told alone
    manifest: Annotated[bytes, Field(max_length=ENCLOSED)] = b""  # of the model that is the body; none: it is fetched

    @model_validator(mode="after")
    def _has_whole_slots(self) -> "Call":
        if len(self.slots) % SLOT:
            raise ValueError("slots of another size")
        return self


class Answer(_WireModel):
    """What a device did, and what it saw: its counts are in the body, which may be sealed."""

    kind: Literal["answer"] = "answer"
    job: Name
    run_id: Name
    round: Round
    purpose: Purpose = "train"
    device: Name
    model: Name
    weight: Annotated[float, Field(ge=1e-9, le=1e12, allow_inf_nan=False)]  # never so small that it vanishes
    steps: Annotated[int, Field(ge=0, le=2**40)]
    seconds_per_step: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 0.0
    devices: Speaks = 1  # whose weighted mean this is
    tensors: Tensors


class Receipt(_WireModel):
    """The coordinator has an answer on its own disk, or says why it does not want it."""

    kind: Literal["receipt"] = "receipt"
    job: Name
    round: Round
    digest: Digest
    verdict: Literal["accepted", "duplicate", "late", "refused"]
    reason: Text = ""


NOT_IN_RUN = "device.not_in_run"  # the code of a refusal that nothing is wrong with: the run is for other devices


class Refusal(_WireModel):
    """The coordinator will not work with this device now; `installation` and `key` say which, when two share an id."""

    kind: Literal["refusal"] = "refusal"
    code: Name
    reason: Text
    installation: Name | None = None
    key: Label | None = None


class Missing(_WireModel):
    """Send these chunks again."""

    kind: Literal["missing"] = "missing"
    digest: Digest
    indexes: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(max_length=INDEXES), FailFast()]


class Holding(_WireModel):
    """A device that was interrupted holds an answer: what of it has not arrived?"""

    kind: Literal["holding"] = "holding"
    job: Name
    run_id: Name
    round: Round
    digest: Digest
    size: Annotated[int, Field(ge=1)]  # bytes of the frame


class Absent(_WireModel):
    """A device did not find a model at the broker, or found a manifest there that is not ours: publish it again."""

    kind: Literal["absent"] = "absent"
    job: Name
    model: Name
    forged: bool = False  # the chunks are known by their hash: only the manifest has to come again


class DeclinedMessage(_WireModel):
    """A device cannot do what it was asked."""

    kind: Literal["declined"] = "declined"
    job: Name
    round: Round
    reason: Text
    to: Label | None = None  # the key whose task it was, where the device trusts another: no other coordinator is meant


class BusyMessage(_WireModel):
    """A device works for another run; it keeps the task, and takes it up when it is free."""

    kind: Literal["busy"] = "busy"
    job: Name
    round: Round
    reason: Text


class Working(_WireModel):
    """How far a device is with its work; sent at most once a second."""

    kind: Literal["working"] = "working"
    job: Name
    round: Round
    steps: Count
    vitals: WireVitals | None = None  # now and then


class Renewal(_WireModel):
    """A device asks for a new certificate: the old one ends soon. A PEM request, whose key stays on the device."""

    kind: Literal["renewal"] = "renewal"
    job: Name
    request: Annotated[str, Field(max_length=4096)]


class Renewed(_WireModel):
    """The certificate (PEM) that a device asked for."""

    kind: Literal["renewed"] = "renewed"
    certificate: Annotated[str, Field(max_length=16384)]


class Addresses(_WireModel):
    """Where the fleet's broker is reached from now on, in the order to try; of two such messages the larger number
    counts. Whom a device believes at these addresses does not change.
    """

    kind: Literal["addresses"] = "addresses"
    number: Count
    brokers: Annotated[tuple[Annotated[str, Field(max_length=300)], ...], Field(min_length=1, max_length=ADDRESSES)]


class Renew(_WireModel):
    """Ask for a new certificate now, however long the one that is here lasts: with a `Renewal` to this run."""

    kind: Literal["renew"] = "renew"
    job: Name
    run_id: Name


class DeviceRequest(_WireModel):
    """The fleet's operator asks a device how it is; said on the job `topics.SERVER`, and answered by a `Reply`."""

    kind: Literal["request"] = "request"
    id: Name  # chosen by who asks, never twice
    what: Name  # doctor, logs or vitals; a device refuses what it does not know
    by: Label = ""  # who asks, as the asking side says: for the device's log


class Examined(_WireModel):
    """One thing that a device has looked at: see `edgefl.ops.doctor.finding.Finding`."""

    what: Label
    level: Literal["ok", "warning", "wrong"]
    text: Text
    remedy: Text = ""


class Reply(_WireModel):
    """What a device answers, without values of its data; or why it does not."""

    kind: Literal["reply"] = "reply"
    id: Name  # of the request
    refused: Text = ""  # why there is no answer
    findings: Annotated[tuple[Examined, ...], Field(max_length=MOST_FINDINGS), FailFast()] = ()
    lines: Annotated[tuple[Line, ...], Field(max_length=MOST_LINES), FailFast()] = ()  # of its log, the newest last
    vitals: WireVitals | None = None


ToDevice: TypeAlias = Annotated[
    Assignment | Receipt | Refusal | Missing | Renewed | Addresses | Renew | DeviceRequest, Field(discriminator="kind")
]
ToCoordinator: TypeAlias = Annotated[
    Answer | Holding | Missing | Absent | DeclinedMessage | BusyMessage | Working | Renewal, Field(discriminator="kind")
]

ToServer: TypeAlias = Annotated[Reply | Renewal, Field(discriminator="kind")]  # on the job `topics.SERVER`

LATER = ConfigDict(defer_build=True)  # when first read: a device reads few of them, and starts often
CALL: TypeAdapter[Call] = TypeAdapter(Call)
TO_DEVICE: TypeAdapter[ToDevice] = TypeAdapter(ToDevice, config=LATER)
TO_COORDINATOR: TypeAdapter[ToCoordinator] = TypeAdapter(ToCoordinator, config=LATER)
TO_SERVER: TypeAdapter[ToServer] = TypeAdapter(ToServer, config=LATER)
BROADCAST: TypeAdapter[Broadcast] = TypeAdapter(Broadcast)
GRAPHS: TypeAdapter[Graphs] = TypeAdapter(Graphs)

WITH_BODY = Broadcast, Graphs, Call, Answer
SMALL = HEADER_LIMIT + 128  # bytes of a frame that has no body

T = TypeVar("T")
J = TypeVar("J", bound=_WireModel)


def frame(message: BaseModel, parts: tuple[bytes | memoryview, ...] = (), *, compress: bool = False) -> bytes:
    """The frame that says `message`."""
    return pack(message.model_dump(), parts, compress=compress)


def frame_size(message: BaseModel, parts: tuple[bytes | memoryview, ...] = (), *, compress: bool = False) -> int:
    """How many bytes `frame` would give."""
    return frames.length(message.model_dump(), parts, compress=compress)


def peek(kind: TypeAdapter[T], data: bytes | bytearray | memoryview) -> tuple[T, Unread]:
    """What a frame says, checked; its body is not opened yet."""
    unread = frames.peek(data)
    return checked(kind, unread.header), unread


def checked(kind: TypeAdapter[T], header: dict[str, Any]) -> T:
    """What a header says."""
    try:
        return kind.validate_python(header)
    except ValidationError as error:
        raise WireError("wire.malformed", _first(error)) from None


def read(
    kind: TypeAdapter[T], data: bytes | bytearray | memoryview, limit: int, unseal: Unseal | None = None
) -> tuple[T, Frame]:
    """What a frame says, checked, and its body, if it is of a kind that has one, up to `limit` bytes."""
    message, unread = peek(kind, data)
    return message, Frame(unread.header, unread.body(limit if isinstance(message, WITH_BODY) else 0, unseal))


def read_json(kind: type[J], payload: bytes | memoryview) -> J:
    """What a retained JSON message says, checked."""
    if len(payload) > kind.limit:
        raise WireError("wire.too_large", f"{kind.__name__}: {len(payload)} bytes; the limit is {kind.limit}")
    try:
        return kind.model_validate_json(bytes(payload))
    except ValidationError as error:
        raise WireError("wire.malformed", f"{kind.__name__}: {_first(error)}") from None


def _first(error: ValidationError) -> str:
    first = error.errors(include_input=False, include_url=False)[0]
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
