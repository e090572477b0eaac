"""Inside the box: an order comes, is trained as it would be in the agent's own process, and its outcome goes out."""

import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from time import monotonic
from typing import Any

from device_agent.box.channel import Channel, ChannelClosed, Parcel, packed, unpacked
from device_agent.decide.failure_reason import FailureReason, judged
from device_agent.decide.vocabulary import Tasked
from device_agent.shell.backends import maker
from device_agent.shell.order import Cancellation, Item, TrainingOrder
from device_agent.shell.samples import NONE, Samples
from device_agent.shell.workers import Bench, InProcessWorker
from edgefl.base.errors import RemoteError
from edgefl.job.config.local_compute import LocalCompute
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.tasks import form
from edgefl.system import blas, resident_memory
from edgefl.system.confinement import confine
from edgefl.system.shared_memory import mapped
from edgefl.wire.messages import Manifest

TELL_EVERY = 0.2  # seconds between two words about progress
LONGEST = 1 << 40  # bytes of an order: the agent's own limits came before
FIRST = 2  # answers, for which code runs that later ones do not need
TEXT = 20_000  # characters of a traceback
LOADING = 128 << 20  # bytes, beside what training may take: for loading a graph and for what Python does


@dataclass(frozen=True, slots=True)
class BoxSetup:
    """What stays the same from box to box."""

    device: str = ""
    compute: LocalCompute = field(default_factory=LocalCompute)

    def described(self) -> dict[str, Any]:
        return {"device": self.device, "compute": self.compute.model_dump_json()}

    @classmethod
    def read(cls, about: dict[str, Any]) -> "BoxSetup":
        return cls(about["device"], LocalCompute.model_validate_json(about["compute"]))


def load(engine: str) -> None:
    """Import what trains; where it cannot be imported, a task that needs it will say so."""
    with suppress(ImportError):
        import_module("torch" if engine == "torch" else "edgefl.learn.models.onnx_backend")
    blas.libraries()  # they are looked for in files, which a box cannot open any more


def serve(channel: Channel, setup: BoxSetup, engine: str) -> None:
    """Be a box until the agent is gone."""
    load(engine)
    resident_memory.open_maps()
    compute = setup.compute
    gpu = compute.device != "cpu" and engine == "torch"
    memory = None if gpu else (compute.memory_mb << 20) + LOADING
    threads = max(compute.threads, 2 if engine == "torch" else 1)  # torch has one of its own for gradients
    confined = confine(memory, threads=threads, files=not gpu)
    channel.send({"kind": "ready", "got": confined.got, "missing": confined.missing})
    held = BoxState(setup)
    while True:
        try:
            parcel = channel.receive(LONGEST, handles=True)
        except ChannelClosed:
            os._exit(0)
        if parcel.about["kind"] == "samples":
            held.take(parcel)
        else:
            _answer(channel, parcel, held)


class BoxState:
    """What a box has from order to order: the samples, the last graphs, and what was made of them."""

    def __init__(self, setup: BoxSetup) -> None:
        self.setup, self.samples = setup, Samples(NONE)
        self.graphs: tuple[str, bytearray] | None = None
        self.bench = Bench()
        self.answers = 0
        self.make_model = maker(setup.compute, lambda: len(self.samples.data))

    def take(self, parcel: Parcel) -> None:
        """These samples from now on."""
        about, handle = parcel.about, parcel.handle
        if handle is None:
            raise ChannelClosed("samples without memory")
        x, y, *others = mapped(handle, tuple((kind, tuple(shape)) for kind, shape in about["arrays"]))
        os.close(handle)
        names, targets = (None if about[key] is None else tuple(about[key]) for key in ("class_names", "target_names"))
        data = Dataset(x, y, about["classes"], names, about["numbered"], targets, form.read(about["form"]))
        aside = replace(data, x=others[0], y=others[1]) if others else None
        self.samples = Samples(data, aside, describes=about["describes"])
        left_out = None if about["left_out"] is None else tuple(about["left_out"])
        self.samples.sum_over(lambda _: left_out)

    def tidy(self) -> None:
        """Let go of code that only the first answers needed, while the agent sends them."""
        self.answers += 1
        if self.answers <= FIRST:
            resident_memory.release_code()

    def order(self, parcel: Parcel) -> TrainingOrder:
        """What was ordered."""
        about, parts = parcel.about, list(parcel.parts)
        manifest, model = Manifest.model_validate_json(parts.pop(0)), parts.pop(0)
        previous = parts.pop(0) if about["previous"] else None
        if about["graphs_come"]:
            self.graphs = about["graphs"], parts.pop(0)
        graphs = self.graphs[1] if self.graphs and about["graphs"] == self.graphs[0] else None
        state = unpacked(about["state"], parts)
        known = about["most"], about["fewest"], about["hidden"], about["keeps"]
        return TrainingOrder(Tasked(**about["task"]), Item(manifest, model), previous, graphs, state, *known)


def _answer(channel: Channel, parcel: Parcel, held: BoxState) -> None:
    told = monotonic()

    def watch(steps: int) -> None:
        nonlocal told
        if (now := monotonic()) - told >= TELL_EVERY:
            told = now
            channel.send({"kind": "step", "steps": steps})

    setup = held.setup
    factories = frozenset(setup.compute.factories)
    train = InProcessWorker(setup.device, held.samples, held.make_model, factories, bench=held.bench)
    try:
        done = train(held.order(parcel), watch, Cancellation())
    except ChannelClosed:
        raise
    except MemoryError:
        why = f"training needs more memory than compute.memory_mb = {setup.compute.memory_mb} on this device"
        _failed(channel, judged(RemoteError("box.memory", why, free_of_data=True)))
    except Exception as error:  # noqa: BLE001 - a model of the user's may raise anything: the agent is told
        _failed(channel, judged(error))
    else:
        (kept, arrays), (own, own_arrays) = packed(done.kept), packed(done.own)
        pace = {"steps": done.steps, "seconds_per_step": done.seconds_per_step}
        channel.send({"kind": "done", "state": kept, "own": own, **pace}, [done.frame, *arrays, *own_arrays])
        held.tidy()


def _failed(channel: Channel, verdict: FailureReason) -> None:
    shown = {name: text[:TEXT] if isinstance(text, str) else text for name, text in asdict(verdict).items()}
    channel.send({"kind": "failed", **shown})
