"""A small device made from docs/protocol.md: it takes part in a real run and imports nothing of edgefl.

    python second_device.py --broker 127.0.0.1:1883 --id pi-01 --data part.npz --folder pi-01

It serves one run at a time, trains FedAvg with plain steps on the coordinator's graphs (or a softmax regression in
plain numpy) and ends with the run. The last line that it prints says in JSON what happened.
"""

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from math import isfinite
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

import numpy as np
import paho.mqtt.client as paho
import second_reader as wire
from blake3 import blake3
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from second_reader import Place, Refused, must
from second_streams import Stream

LARGEST_PACKET = 1 << 20
LARGEST_MODEL = 1 << 28
STALLED = 3.0  # seconds without a piece of a model
PLAIN = {"name", "lr", "batch", "epochs", "batches", "momentum", "weight_decay", "weights"}


class Item(NamedTuple):
    """A model, or graphs, that has come whole."""

    manifest: dict[str, Any]
    frame: bytes


class Held(NamedTuple):
    """An answer that waits for its receipt."""

    task: dict[str, Any]
    frame: bytes
    remainder: np.ndarray | None  # what a codec left out


class Download:
    """A frame that is being fetched from the broker."""

    def __init__(self, id: str, round: int) -> None:
        self.id, self.round, self.group, self.touched = id, round, 0, time.monotonic()
        self.manifest: dict[str, Any] | None = None
        self.early: list[bytes] = []  # chunks that were faster than the manifest
        self.assembler = wire.Assembler(LARGEST_MODEL)

    def add(self, payload: bytes) -> bytes | None:
        """Take in a chunk; the frame, if it is whole with it."""
        if self.manifest is None:
            self.early.append(payload)
            return None
        must(payload[4:36].hex() == self.manifest["digest"], "a chunk of another model")
        return self.assembler.add(payload)

    def believe(self, manifest: dict[str, Any]) -> bytes | None:
        """Take in the manifest, and the chunks that came before it."""
        self.manifest = manifest
        return next((whole for one in self.early if (whole := self.add(one)) is not None), None)

    def group_is_whole(self) -> bool:
        """Whether the chunks of the group in hand have come, and there is another group."""
        have = {index for _, parts in self.assembler.open.values() for index in parts}
        end = (self.group + 1) * wire.GROUP
        return self.manifest is not None and wire.count_of(self.manifest["size"]) > end and have >= set(range(end))


class Device:
    def __init__(self, about: argparse.Namespace) -> None:
        self.id, self.fleet, self.about = about.id, about.fleet, about
        with np.load(about.data) as data:
            self.x, self.y = data["x"], data["y"].astype(np.int64)
        self.file = Path(about.folder) / "device.json"
        self.kept = self._kept()
        self.signer = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(self.kept["key"]))
        self.counter = self.kept["life"] << wire.LIFE_BITS
        self.trusted: str = about.coordinator or self.kept["coordinator"]
        self.events: SimpleQueue[Any] = SimpleQueue()
        self.inbox, self.calls = wire.Assembler(wire.SMALL_FRAME), wire.Assembler(wire.SMALL_FRAME + wire.CALL_BODY)
        self.series: tuple[Any, ...] = ()  # of the call that is coming in
        self.items: dict[str, Item] = {}
        self.download: Download | None = None
        self.task: dict[str, Any] | None = None
        self.held: Held | None = None
        self.answered: tuple[int, int] | None = None
        self.remainder: np.ndarray | None = None
        self.announced, self.announced_at = b"", 0.0
        self.job = self.run_id = ""
        self.seen, self.ended = set[str](), False
        self.story: Counter[str] = Counter()
        self.client = self._client()

    def _kept(self) -> dict[str, Any]:
        """Count up this device's life, and store it before anything is said."""
        before: dict[str, Any] = json.loads(self.file.read_text()) if self.file.exists() else {}
        new = {"key": os.urandom(32).hex(), "installation": os.urandom(16).hex(), "coordinator": "", "heard": {}}
        life = max(min(int(time.time()), wire.LATEST_LIFE), before.get("life", 0) + 1)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.kept = {**new, **before, "life": life}
        self._store()
        return self.kept

    def _store(self) -> None:
        fresh = self.file.with_suffix(".new")
        fresh.write_text(json.dumps(self.kept))
        fresh.replace(self.file)

    def _client(self) -> paho.Client:
        client = paho.Client(paho.CallbackAPIVersion.VERSION2, self.id, protocol=paho.MQTTv5)
        client.on_connect = lambda *_: self.events.put("connected")
        client.on_message = lambda _client, _data, message: self.events.put((message.topic, bytes(message.payload)))
        client.will_set(self.topic("presence", self.id), self.presence(online=False), qos=1, retain=True)
        return client

    # ---- saying ----------------------------------------------------------------------------------------------------

    def topic(self, *levels: str) -> str:
        return "/".join([wire.TOPIC_ROOT, self.fleet, *levels])

    def next_counter(self) -> int:
        self.counter += 1
        return self.counter - 1

    def presence(self, *, online: bool) -> bytes:
        about = {
            "protocol": wire.PROTOCOL,
            "online": online,
            "installation": self.kept["installation"],
            "birth": self.kept["life"],
            "host": "elsewhere",
            "version": "second",
            "samples": len(self.y),
            "back_end": self.about.trainer,
            "concise": not self.about.alone,
        }
        wire.checked("presence", about)
        place = Place("presence", self.fleet, "", "", self.id)
        return wire.envelope(self.signer, place, self.next_counter(), json.dumps(about).encode())

    def announce(self, *, online: bool = True) -> paho.MQTTMessageInfo:
        self.announced, self.announced_at = self.presence(online=online), time.monotonic()
        return self.client.publish(self.topic("presence", self.id), self.announced, qos=1, retain=True)

    def say(self, kind: str, **fields: Any) -> None:
        self.send(wire.message(kind, fields))

    def send(self, frame: bytes, indexes: Any = None) -> None:
        """Send chunks of a frame, all with the same counter."""
        counter, place = self.next_counter(), Place("up", self.fleet, self.job, self.run_id, self.id)
        for payload in wire.split(frame, indexes):
            sealed = wire.envelope(self.signer, place, counter, payload)
            self.client.publish(self.topic(self.job, "dev", self.id, "up"), sealed, qos=1)
            self.story["messages"] += 1

    def decline(self, task: dict[str, Any], why: str) -> None:
        self.job, self.run_id = task["job"], task["run_id"]
        self.say("declined", job=task["job"], round=task["round"], reason=why[:2000])
        self.story["declined"] += 1

    # ---- hearing ---------------------------------------------------------------------------------------------------

    def serve(self) -> None:
        host, port = self.about.broker.rsplit(":", 1)
        hello = Properties(PacketTypes.CONNECT)
        hello.MaximumPacketSize = LARGEST_PACKET
        self.client.connect(host, int(port), keepalive=6, clean_start=True, properties=hello)
        self.client.loop_start()
        while not self.ended:
            try:
                event = self.events.get(timeout=0.5)
            except Empty:
                self.look_for_the_model()
                continue
            try:
                self.handle(event)
            except Refused as refused:
                self.story["refused"] += 1
                print("refused", event[0], refused, file=sys.stderr, flush=True)
        self.announce(online=False).wait_for_publish(10)
        self.client.disconnect()
        self.client.loop_stop()

    def handle(self, event: Any) -> None:
        if event == "connected":
            here = self.topic("+", "state"), self.topic("+", "model", "round"), self.topic("+", "dev", self.id, "down")
            self.client.subscribe(
                [(one, paho.SubscribeOptions(qos=1)) for one in (*here, self.topic("presence", self.id))]
            )
            self.announce()
            if self.download:
                self.subscribe_to_the_model()
            if self.held:
                self.offer(self.held)
            return
        topic, payload = event
        match topic.split("/")[3:]:
            case ("presence", self.id) if payload:
                self.hear_own_presence(payload)
            case (job, "state") if payload:
                self.hear_state(job, payload)
            case (job, "model", "round"):
                self.hear_call(job, payload)
            case (_, "model", id, *_, last) if payload and self.download and id == self.download.id:
                self.hear_model(last, payload)
            case (job, "dev", self.id, "down"):
                self.hear_message(job, payload)

    def hear_own_presence(self, payload: bytes) -> None:
        """An old last will that comes behind our word is answered; not at once again and again."""
        if payload == self.announced or time.monotonic() - self.announced_at < 1.0:
            return
        opened = wire.open_envelope(payload, "presence", self.fleet, device=self.id)
        said = wire.read_json("presence", opened.payload)
        ours = said["installation"] == self.kept["installation"]
        if ours and (said["birth"], said["online"]) < (self.kept["life"], True):
            self.announce()

    def check_new(self, opened: wire.Opened, *, state: bool = False, finished: bool = False) -> None:
        """Refuse what is older than the last message of its run."""
        heard = self.kept["heard"].setdefault(opened.run_id, {"down": -1, "state": -1, "ended": False})
        if state:
            must((opened.counter, finished) >= (heard["state"], heard["ended"]), "an old state")
            heard["state"], heard["ended"] = opened.counter, finished
            heard["down"] = max(heard["down"], opened.counter) if finished else heard["down"]
        else:
            must(not heard["ended"] and opened.counter > heard["down"], "an old message")
            heard["down"] = opened.counter
        self._store()

    def check_key(self, opened: wire.Opened) -> None:
        must(self.trusted in {"", wire.key_text(opened.key)}, "signed by another key")

    def hear_state(self, job: str, payload: bytes) -> None:
        opened = wire.open_envelope(payload, "state", self.fleet, job)
        self.check_key(opened)
        state = wire.read_json("state", opened.payload)
        must((state["job"], state["run_id"]) == (job, opened.run_id), "a state of another run")
        must(state["protocol"] == wire.PROTOCOL, "another version")
        if self.trusted:
            self.check_new(opened, state=True, finished=state["phase"] == "finished")
        if state["phase"] != "finished":
            self.seen.add(opened.run_id)
            if self.task and self.task["run_id"] == opened.run_id and self.task["round"] < state["round"]:
                self.task = self.download = None
        elif opened.run_id in self.seen:
            self.held, self.ended = None, True

    def hear_message(self, job: str, payload: bytes) -> None:
        opened = wire.open_envelope(payload, "down", self.fleet, job, self.id)
        self.check_key(opened)
        if self.trusted:
            self.check_new(opened)
        whole = self.inbox.add(opened.payload)
        if whole is None:
            return
        kind, said, _ = wire.read_message(whole)
        must(kind in wire.TO_DEVICES and said.get("job", job) == job, "said at another place")
        match kind:
            case "task":
                must(said["run_id"] == opened.run_id, "a task of another run")
                self.trust(opened)
                self.begin(said, said["enclosed"] and Item(*self.enclosed(said)))
            case "receipt":
                self.hear_receipt(said)
            case "missing" if self.held and blake3(self.held.frame).digest() == said["digest"]:
                self.story["asked again"] += 1
                self.send(self.held.frame, said["indexes"])
            case "refusal":
                print("refusal", said, file=sys.stderr, flush=True)

    def hear_call(self, job: str, payload: bytes) -> None:
        opened = wire.open_envelope(payload, "round", self.fleet, job)
        self.check_key(opened)
        series = opened.key, opened.run_id, opened.counter, wire.in_common(opened.payload)
        if series[-1] is None or series != self.series:
            if self.trusted:
                self.check_new(opened)
            self.series = series
        whole = self.calls.add(opened.payload)
        if whole is None:
            return
        self.series = ()
        kind, call, body = wire.read_message(whole, wire.CALL_BODY)
        must(kind == "call", "no call")
        task = wire.checked("task", call["task"])
        must((task["job"], task["run_id"]) == (job, opened.run_id), "a call of another run")
        own = wire.own_slot(call, self.fleet, self.id, self.kept["installation"])
        if own is None:
            return
        self.story["calls"] += 1
        self.trust(opened)
        item = (
            Item(self.manifest(call["manifest"], task, task["round"], task["model"]), body)
            if call["manifest"]
            else None
        )
        self.begin({**task, **own, "installation": None}, item)

    def trust(self, opened: wire.Opened) -> None:
        """The first key that signs a task is the coordinator's, where none was given."""
        if not self.trusted:
            self.trusted = self.kept["coordinator"] = wire.key_text(opened.key)
            self.check_new(opened)

    def enclosed(self, task: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        inside = wire.checked("enclosed", task["enclosed"])
        return self.manifest(inside["manifest"], task, task["round"], task["model"]), inside["frame"]

    def hear_receipt(self, receipt: dict[str, Any]) -> None:
        if self.held and blake3(self.held.frame).digest() == receipt["digest"]:
            self.settle(receipt["verdict"])

    def settle(self, verdict: str) -> None:
        """The coordinator has said what became of the answer."""
        assert self.held is not None
        if verdict in {"accepted", "duplicate"}:
            self.remainder = self.held.remainder
        self.answered = self.held.task["round"], self.held.task["attempt"]
        self.held = None
        self.story[verdict] += 1

    # ---- tasks -----------------------------------------------------------------------------------------------------

    def begin(self, task: dict[str, Any], item: Item | None) -> None:
        if task["installation"] not in {None, self.kept["installation"]}:
            return
        self.seen.add(task["run_id"])
        if item is not None:
            must(blake3(item.frame).hexdigest() == item.manifest["digest"], "another model came with the task")
            self.items[task["model"]] = item
        if self.run_id not in {"", task["run_id"]} and (self.task or self.held):
            self.decline(task, "this device serves one run at a time")
            return
        self.job, self.run_id = task["job"], task["run_id"]
        if self.held and same_work(self.held.task, task):
            self.offer(self.held)
            return
        mine = self.held.task["round"] if self.held else self.task["round"] if self.task else 0
        if task["round"] < max(mine, self.answered[0] if self.answered else 0):
            self.decline(task, "a round that is over for this device")
            return
        if (task["round"], task["attempt"]) == self.answered:
            return
        if self.held and self.held.task["round"] == task["counted"]:
            self.settle("accepted")
            self.story["counted"] += 1
        self.held, self.task, self.download = None, task, None
        self.go_on()

    def offer(self, held: Held) -> None:
        about = {name: held.task[name] for name in ("job", "run_id", "round")}
        self.say("holding", **about, digest=blake3(held.frame).digest(), size=len(held.frame))

    def go_on(self) -> None:
        """Fetch what the task needs, and do it when all is at hand."""
        task = self.task
        if task is None:
            return
        needs = (task["round"], task["model"]), (0, task["graphs"])
        missing = next(((round, id) for round, id in needs if id and id not in self.items), None)
        if missing:
            if self.download is None or self.download.id != missing[1]:
                self.download = Download(missing[1], missing[0])
                self.subscribe_to_the_model()
            return
        try:
            frame, remainder = self.work(task)
        except Refused as why:
            self.task = None
            self.decline(task, str(why))
            return
        self.task, self.held = None, Held(task, frame, remainder)
        loses = self.about.lossy and not self.story["answers"]
        self.send(frame, range(wire.count_of(len(frame)) - 1) if loses else None)
        self.story["answers"] += 1

    def subscribe_to_the_model(self) -> None:
        assert self.download is not None
        here = self.job, "model", self.download.id
        filters = self.topic(*here, "manifest"), self.topic(*here, str(self.download.group), "+")
        self.client.subscribe([(one, paho.SubscribeOptions(qos=1)) for one in filters])

    def look_for_the_model(self) -> None:
        if self.download and time.monotonic() - self.download.touched > STALLED:
            self.download.touched = time.monotonic()
            self.say("absent", job=self.job, model=self.download.id)
            self.subscribe_to_the_model()
            self.story["absent"] += 1

    def hear_model(self, last: str, payload: bytes) -> None:
        download, task = self.download, self.task
        if download is None or task is None:
            return
        if last == "manifest":
            if download.manifest is not None:
                return
            whole = download.believe(self.manifest(payload, task, download.round, download.id))
        else:
            whole = download.add(payload)
        download.touched = time.monotonic()
        self.story["pieces fetched"] += last != "manifest"
        if whole is None:
            if download.group_is_whole():
                download.group += 1
                self.subscribe_to_the_model()
            return
        assert download.manifest is not None
        self.items[download.id] = Item(download.manifest, whole)
        here = self.job, "model", download.id
        self.client.unsubscribe(
            [self.topic(*here, "manifest"), *(self.topic(*here, str(g), "+") for g in range(download.group + 1))]
        )
        self.download = None
        self.go_on()

    def manifest(self, payload: bytes, task: dict[str, Any], round: int, id: str) -> dict[str, Any]:
        """A manifest that is the coordinator's, and of what is wanted."""
        key, manifest = wire.read_manifest(payload)
        must(self.trusted in {"", wire.key_text(key)}, "a manifest of another key")
        wanted = task["job"], task["run_id"], round
        must((manifest["job"], manifest["run_id"], manifest["round"]) == wanted, "a manifest of something else")
        must(manifest["digest"].startswith(id) and manifest["size"] <= LARGEST_MODEL, "a manifest of another model")
        return manifest

    # ---- work ------------------------------------------------------------------------------------------------------

    def work(self, task: dict[str, Any]) -> tuple[bytes, np.ndarray | None]:
        """The frame of the answer, and what its codec left out."""
        manifest, frame = self.items[task["model"]]
        layout = wire.checked("shape", manifest["layout"])
        must(task["purpose"] == "train" and manifest["rows"] is None, "this device only trains plain tasks")
        must(tuple(manifest["sample"]) == self.x.shape[1:], "samples of another shape")
        size = sum(wire.sizes(layout))
        _, model, body = wire.read_message(frame, 64 * size + (1 << 20))
        arrays = wire.read_tensors(model["tensors"], body)
        params = arrays.pop("params")
        must(params.shape == (size,) and params.dtype == np.float32, "a model of another size")
        must(not arrays, f"additions that this device does not know: {', '.join(arrays)}")
        algorithm = plain_fedavg(manifest["algorithm"])
        self.say("working", job=self.job, round=task["round"], steps=0)
        graphs = self.items[task["graphs"]].frame if task["graphs"] else None
        steps = OnGraphs(graphs, layout, algorithm) if self.about.trainer == "onnx" else InNumpy(layout, algorithm)
        began = time.monotonic()
        mine = trained_on(len(self.y), task["held_back"], manifest["seed"], self.id)
        x, y = self.x[mine], self.y[mine]
        after, count, samples = walk(steps, task, manifest, self.id, x, y, algorithm, params)
        pace = (time.monotonic() - began) / count
        delta = after - params
        if self.remainder is not None:
            delta = delta + self.remainder
        chance = Stream(manifest["seed"], task["round"], self.id, "codec")
        kind, payload = wire.encode(delta, manifest["codec"], layout, chance)
        seen = wire.decode(kind, payload, size)
        weight = {"samples": len(y), "uniform": 1, "batch": samples}[algorithm["weights"]]
        about = {name: task[name] for name in ("job", "run_id", "round", "purpose", "model")}
        tensor = {"name": "delta", "kind": kind, "dtype": "<f4", "shape": [size], "bytes": len(payload)}
        fields = {**about, "device": self.id, "weight": float(weight), "steps": count, "seconds_per_step": pace}
        answer = wire.message("answer", {**fields, "tensors": [tensor]}, payload, compress=manifest["compress"])
        if task["seal"]:
            answer = wire.seal(answer, task["seal"], os.urandom(32))
        return answer, None if kind == "float32" else delta - seen


def same_work(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(one[name] == other[name] for name in ("run_id", "round", "model", "seal", "purpose"))


def walk(  # noqa: PLR0917 - all that a walk depends on
    steps: Any,
    task: dict[str, Any],
    manifest: dict[str, Any],
    device: str,
    x: np.ndarray,
    y: np.ndarray,
    algorithm: dict[str, Any],
    params: np.ndarray,
) -> tuple[np.ndarray, int, int]:
    """Take the steps that are asked for; the weights, how many steps, and how many samples they saw."""
    n, size, buffers = len(y), algorithm["batch"], manifest["layout"].get("buffers", 0)
    per_pass = -(-n // size) - (1 if buffers and n % size == 1 and n > 1 else 0)
    goal = algorithm["batches"] or round(algorithm["epochs"] * per_pass)
    goal = max(1, min(goal, task["batches"] or goal))
    end = time.monotonic() + task["seconds"] if task["seconds"] else float("inf")
    taken = samples = 0
    state = steps.begin(params)
    for rows in mini_batches(Stream(manifest["seed"], task["round"], device), n, size, per_pass):
        loss = steps.take(state, x[rows], y[rows])
        must(isfinite(loss), "learning left the finite numbers")
        taken, samples = taken + 1, samples + len(rows)
        if taken >= goal or time.monotonic() >= end:
            break
    after = steps.end(state)
    must(np.isfinite(after).all(), "learning left the finite numbers")
    return after, taken, samples


def trained_on(n: int, share: float | None, seed: int, device: str) -> list[int]:
    """The samples that are trained on, where a share is set aside."""
    aside = min(round((share or 0) * n), n - 1)
    return sorted(Stream(seed, device, "held back").permutation(n)[aside:])


def mini_batches(stream: Stream, n: int, size: int, per_pass: int) -> Iterator[list[int]]:
    while True:
        order = stream.permutation(n)[: per_pass * size]
        for at in range(0, len(order), size):
            yield order[at : at + size]


def plain_fedavg(table: dict[str, Any]) -> dict[str, Any]:
    """The hyper-parameters, if these are plain steps of FedAvg."""
    must(table.get("name") == "fedavg", f"an algorithm that this device does not know: {table.get('name')}")
    for name, value in table.items():
        plain = {
            "optimiser": (("name", "sgd"), ("nesterov", False)),
            "lr_schedule": (("name", "constant"), ("warmup", 0)),
        }
        ordinary = value in (None, [], ()) or (
            name in plain and isinstance(value, dict) and all(value.get(key) == wanted for key, wanted in plain[name])
        )
        must(name in PLAIN or ordinary, f"a hyper-parameter that this device does not know: {name}")
    return table


class OnGraphs:
    """Whole steps in the coordinator's graph."""

    def __init__(self, frame: bytes | None, layout: dict[str, Any], algorithm: dict[str, Any]) -> None:
        import onnxruntime

        must(frame is not None, "no graphs")
        _, _, body = wire.read_message(frame or b"", LARGEST_MODEL)
        bundle = wire.read_bundle(body)
        must(
            [bundle["names"], bundle["shapes"]] == [list(layout["names"]), [list(s) for s in layout["shapes"]]],
            "layout",
        )
        must(bundle["descent"] and not bundle["masks"] and not bundle.get("frozen"), "graphs of another kind")
        self.layout, self.algorithm, (self.loss, self.terms) = layout, algorithm, bundle["plan"]
        wanted = {"decay": algorithm["weight_decay"], "momentum": algorithm["momentum"]}
        must(self.loss == "cross_entropy" and {t for t, v in wanted.items() if v} == set(self.terms), "another plan")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        self.session = onnxruntime.InferenceSession(bundle["descent"], options, providers=["CPUExecutionProvider"])
        self.inputs = {one.name for one in self.session.get_inputs()}
        self.outputs = [one.name for one in self.session.get_outputs()]
        self.dtype = bundle["dtype"]

    def begin(self, params: np.ndarray) -> dict[str, np.ndarray]:
        state, at = {}, 0
        for name, shape in zip(self.layout["names"], self.layout["shapes"], strict=True):
            length = int(np.prod(shape, dtype=np.int64))
            state[f"from.{name}"] = aligned(params[at : at + length].reshape(shape))
            state[f"velocity_from.{name}"] = aligned(np.zeros(shape, np.float32))
            at += length
        return {name: value for name, value in state.items() if name in self.inputs}

    def take(self, state: dict[str, np.ndarray], x: np.ndarray, y: np.ndarray) -> float:
        lr = self.algorithm["lr"]
        terms = {"decay": -lr * self.algorithm["weight_decay"], "momentum": self.algorithm["momentum"]}
        scalars = {"gain": -lr / len(y), **{term: terms[term] for term in self.terms}}
        feeds = {"xs": aligned(x[None].astype(self.dtype)), "ys": aligned(y[None])}
        feeds |= {name: np.array(value, np.float32) for name, value in scalars.items()}
        results = dict(zip(self.outputs, self.session.run(None, {**state, **feeds}), strict=True))
        for name in state:
            state[name] = aligned(results[name.replace("from.", "to.", 1)])
        return float(results["losses"][0])

    def end(self, state: dict[str, np.ndarray]) -> np.ndarray:
        return np.concatenate([state[f"from.{name}"].reshape(-1) for name in self.layout["names"]])


class InNumpy:
    """Softmax regression without any graph: what a device in another language would write itself."""

    def __init__(self, layout: dict[str, Any], algorithm: dict[str, Any]) -> None:
        must(
            [len(shape) for shape in layout["shapes"]] == [2, 1] and not algorithm["momentum"], "no softmax regression"
        )
        must(not algorithm["weight_decay"], "weight decay")
        self.shape, self.lr = layout["shapes"][0], np.float32(algorithm["lr"])

    def begin(self, params: np.ndarray) -> dict[str, np.ndarray]:
        split = self.shape[0] * self.shape[1]
        return {"w": params[:split].reshape(self.shape).copy(), "b": params[split:].copy()}

    def take(self, state: dict[str, np.ndarray], x: np.ndarray, y: np.ndarray) -> float:
        x = x.reshape(len(x), -1)
        z = x @ state["w"].T + state["b"]
        z -= z.max(axis=1, keepdims=True)
        logs = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
        slope = np.exp(logs)
        slope[np.arange(len(y)), y] -= 1
        slope *= self.lr / np.float32(len(y))
        state["w"] -= slope.T @ x
        state["b"] -= slope.sum(axis=0)
        return -float(logs[np.arange(len(y)), y].sum())

    def end(self, state: dict[str, np.ndarray]) -> np.ndarray:
        return np.concatenate([state["w"].reshape(-1), state["b"]])


def aligned(array: np.ndarray) -> np.ndarray:
    """The same numbers, beginning at a multiple of 64 bytes."""
    memory = np.zeros(array.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    for name in ("broker", "id", "data", "folder"):
        options.add_argument(f"--{name}", required=True)
    options.add_argument("--fleet", default="default")
    options.add_argument("--coordinator", default="", help="its key; without one the first that signs a task")
    options.add_argument("--trainer", choices=["onnx", "numpy"], default="onnx")
    options.add_argument("--alone", action="store_true", help="be asked alone, never by a call")
    options.add_argument("--lossy", action="store_true", help="leave out the last chunk of the first answer")
    device = Device(options.parse_args())
    device.serve()
    foreign = {module.partition(".")[0] for module in sys.modules} & {
        "edgefl",
        "device_agent",
        "coordinator",
        "gateway",
    }
    print(json.dumps({**device.story, "foreign": sorted(foreign)}), flush=True)


if __name__ == "__main__":
    main()
