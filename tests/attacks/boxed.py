"""Training code that does what it must not, in a real box: `python boxed.py FOLDER ACT ...` prints a line for each act.

The agent's side is what an agent has: a fork server, a box and a trainer. After each act the same box, or the next one,
is given an honest task.
"""

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from device_agent.box.fork_client import Box
from device_agent.box.fork_server import ForkServer

VILLAIN = """
import ctypes, fcntl, gc, os, random, resource, socket, struct, subprocess, time
from typing import Literal
import msgpack
import numpy as np
from pydantic.dataclasses import dataclass
from device_agent.box.channel import Channel
from edgefl.learn.contract import STRICT
from edgefl.wire.messages import Answer, Renewal, frame
from edgefl.learn.algorithms.fedavg import FedAvg

KEPT = []

def eat():
    while True:
        KEPT.append(np.ones(1 << 22))

def burn():
    while True:
        pass

ACTS = {
    "nothing": lambda: None,
    "segfault": lambda: ctypes.string_at(0),
    "abort": os.abort,
    "exit": lambda: os._exit(7),
    "hang": lambda: ctypes.PyDLL(None).sleep(3600),  # in native code, with Python's lock in its hand
    "burn": burn,
    "eat": eat,
    "socket": lambda: socket.create_connection(("127.0.0.1", 9)),
    "passwd": lambda: open("/etc/passwd").read(),
    "key": lambda: open("{folder}/device.key").read(),
    "write": lambda: open("{folder}/written", "w").write("x"),
    "remove": lambda: os.remove("{folder}/device.key"),
    "exec": lambda: subprocess.run(["/bin/true"]),
    "fork": os.fork,
    "signal": lambda: os.kill(os.getppid(), 9),
    "signal of a file": lambda: fcntl.fcntl(0, fcntl.F_SETOWN, os.getppid()),
    "environment": lambda: 1 / 0 if "EDGEFL_MQTT_PASSWORD" in os.environ else open("/proc/self/environ").read(),
}

def ptrace():
    if ctypes.CDLL(None, use_errno=True).ptrace(16, os.getppid(), 0, 0) == -1:  # 16: attach
        raise OSError(ctypes.get_errno(), "ptrace")

GROWS_DOWN, HUGE = 0x100, 0x40000

def take(flag):  # 1.5 GB of a kind of memory that RLIMIT_DATA does not count
    size, libc = 1536 << 20, ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    place = libc.mmap(None, ctypes.c_size_t(size), 3, 0x22 | flag, -1, ctypes.c_long(0))  # private, without a file
    if place == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "mmap")
    ctypes.memset(place, 1, size)

def write_later():  # map memory to be read, which costs nothing, until no address is left; then write to all of it
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    size, places = 50 << 20, []
    while (place := libc.mmap(None, ctypes.c_size_t(size), 1, 0x22, -1, ctypes.c_long(0))) != ctypes.c_void_p(-1).value:
        places.append(place)
    for place in places:
        if libc.mprotect(ctypes.c_void_p(place), ctypes.c_size_t(size), 3):
            raise OSError(ctypes.get_errno(), "mprotect")
        ctypes.memset(place, 1, size)

def stacks():  # take pages of the stack elsewhere, where each of them grows downwards
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mremap.restype = ctypes.c_void_p
    low = (ctypes.c_void_p.in_dll(libc, "__libc_stack_end").value & ~4095) - (4 << 20)
    ctypes.memset(low, 1, 1 << 20)
    for i in range(1, 200):
        there = 0x200000000000 + i * (16 << 20)
        if libc.mremap(ctypes.c_void_p(low + 4096 * i), 4096, 4096, 3, ctypes.c_void_p(there)) != there:
            raise OSError(ctypes.get_errno(), "mremap")
        for below in (3 << 20, 6 << 20):
            ctypes.memset(there - below, 1, 3 << 20)

ACTS |= {
    "write later": write_later,
    "pieces of the stack": stacks,
    "look into the agent": ptrace,
    "memory of the agent": lambda: open(f"/proc/{os.getppid()}/mem", "rb").read(1),
    "files of the agent": lambda: os.listdir(f"/proc/{os.getppid()}/fd"),
    "grow downwards": lambda: take(GROWS_DOWN),
    "huge pages": lambda: take(HUGE),
    "lead elsewhere": lambda: os.symlink("/etc/passwd", "{folder}/link"),
    "lift its limits": lambda: resource.prlimit(0, resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2),
    "limits of the agent": lambda: resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (8, 8)),
}

def channel():  # to the agent
    return next(each for each in gc.get_objects() if isinstance(each, Channel))

def steps_without_end():
    agent = channel()
    while True:
        agent.send({"kind": "step", "steps": 1})
        time.sleep(0.0002)

def a_byte_now_and_then():
    agent = channel()
    agent.end.sendall(struct.pack("<I", 1 << 17))
    while True:
        agent.end.sendall(bytes([0x80]))
        time.sleep(0.5)

def raw(data):
    channel().end.sendall(data)
    time.sleep(3600)

ENDLESS = msgpack.packb({"about": {"kind": "done"}, "sizes": [1 << 50]})
BOMB = bytes([0x91] * 100_000)  # a list in a list in a list ...
ACTS |= {
    "steps without end": steps_without_end,
    "a byte now and then": a_byte_now_and_then,
    "a header without end": lambda: raw(bytes([255] * 8)),
    "garbage": lambda: raw(struct.pack("<I", 64) + random.Random(0).randbytes(64)),
    "lists in lists": lambda: raw(struct.pack("<I", len(BOMB)) + BOMB),
    "a body without end": lambda: raw(struct.pack("<I", len(ENDLESS)) + ENDLESS),
}

def lie(**instead):  # what the box itself says of its work
    send = Channel.send
    def lying(self, about, parts=(), handle=None):
        if about["kind"] != "done":
            return send(self, about, parts, handle)
        frame = instead.get("frame")
        send(self, {**about, **instead.get("about", {})}, [frame or parts[0], *instead.get("arrays", ())], handle)
    Channel.send = lying

WORD = {"about": {"state": [["x", "<U1", [1]]]}, "arrays": [bytes([255] * 4)]}
CSR = "-----BEGIN CERTIFICATE REQUEST-----"
ACTS |= {
    "steps below zero": lambda: lie(about={"steps": -1}),
    "pace of no number": lambda: lie(about={"seconds_per_step": float("nan")}),
    "numbers of no file": lambda: lie(about={"state": [["x", "<f16", [1]]]}, arrays=[bytes(16)]),
    "words of no characters": lambda: lie(**WORD),
    "another message": lambda: lie(frame=frame(Renewal(job="job", request=CSR))),
    "another round": lambda: lie(frame=frame(Answer(round=99, **ANSWER))),
    "no message": lambda: lie(frame=b"x"),
}
ANSWER = {"job": "job", "run_id": "run", "device": "device-00", "model": "model", "weight": 1.0, "steps": 1}
ANSWER |= {"tensors": ()}

@dataclass(frozen=True, config=STRICT, kw_only=True)
class Villain(FedAvg):
    name: Literal["villain"] = "villain"
    act: str = "nothing"

    def train(self, task, state, site):
        if self.act == "hang":  # the agent hears that it is at work
            time.sleep(1.5)
            site.watch(1)
        ACTS[self.act]()
        return super().train(task, state, site)
"""
NAME = "villain:Villain"
SECONDS = 10.0  # for an act that must not go on; an honest task, which has as long, takes a moment


def main(folder: Path, acts: list[str]) -> None:
    fork_server = ForkServer()  # as an agent: first of all
    from fleets import prepared, run_file

    from device_agent.decide.vocabulary import Tasked
    from device_agent.shell.order import Item, TrainingOrder
    from device_agent.shell.samples import Samples
    from device_agent.shell.training import Outcome, Trainer, WorkDone, WorkProgressed
    from edgefl.job.config.local_compute import LocalCompute
    from edgefl.job.run.work import ModelRef, Worker, pack_broadcast
    from edgefl.learn.contract import Budget, Task
    from edgefl.system import user_code, user_files
    from edgefl.system.background import Threads
    from edgefl.system.clock import SystemClock
    from edgefl.wire.codecs import codec
    from edgefl.wire.messages import Graphs, Manifest, Shape, frame

    (folder / "villain.py").write_text(VILLAIN.replace("{folder}", str(folder)))
    (folder / "device.key").write_text("secret")
    user_files.remember(folder / "agent.toml")
    user_code.allow(NAME)
    job, held = prepared(run_file({"name": "fedavg"}, task={"model": "mlp"}))
    slow = {"burn", "steps without end", "a byte now and then"} & set(acts)
    compute = LocalCompute(factories=(NAME,), memory_mb=256, task_seconds=SECONDS if slow else 600)
    samples = Samples(held.devices[0])
    box = Box(fork_server, "device-00", compute, samples, 1 << 28)
    told: SimpleQueue[Outcome] = SimpleQueue()
    trainer = Trainer(Threads(told.put, "training"), SystemClock())
    broadcast = pack_broadcast("job", 1, job.start, {}, codec("float32", "down"))
    graphs = frame(Graphs(job="job"), (job.graphs or b"",))
    about: dict[str, Any] = {"digest": "0" * 64, "size": 1, "layout": Shape.of(job.model.layout), "network": "mlp"}
    about |= {"sample": samples.data.shape, "classes": 10, "loss": "cross_entropy", "codec": "float32", "seed": 3}

    def start(act: str, round: int) -> None:
        table = {"name": NAME, "lr": 0.1, "batch": 64, "act": act}
        manifest = Manifest(job="job", run_id="run", round=round, algorithm=table, **about)
        task = Tasked("job", "run", round, "model", graphs="graphs")
        trainer.start(TrainingOrder(task, Item(manifest, broadcast), None, graphs, {}, 1 << 28), box)

    def outcome(round: int) -> Outcome:
        while isinstance(event := told.get(timeout=120), WorkProgressed) or event.round != round:
            pass
        return event

    for i, act in enumerate(acts):
        round, boxes = 2 * i + 1, {box.pid}
        start({"kill": "hang", "cancel": "hang"}.get(act, act), round)
        if act in {"kill", "cancel"}:
            while not isinstance(told.get(timeout=120), WorkProgressed):
                pass
            boxes = {box.pid}
        if act == "kill":
            os.kill(box.pid or 0, signal.SIGKILL)
        bad = outcome(round) if act != "cancel" else None
        start("nothing", round + 1)
        good = outcome(round + 1)
        line = {"act": act, "told": getattr(bad, "told", None), "mistake": getattr(bad, "mistake", None)}
        line |= {"trained": isinstance(good, WorkDone), "why": getattr(good, "told", ""), "same_box": box.pid in boxes}
        if isinstance(good, WorkDone):
            made_of = job.algorithm, job.device_model, held.devices[0], job.loss, job.run.transforms, 3
            worker = Worker("job", "device-00", *made_of)
            algorithm = replace(worker.algorithm, lr=0.1, batch=64)
            task = Task(round + 1, job.start, Budget(None, None), {})
            here = replace(worker, algorithm=algorithm).work(task, ModelRef("run", "model"), {})
            delta = slice(-4 * job.model.layout.size, None)
            line["same_bits"] = here.frame[delta] == good.done.frame[delta]
        print(json.dumps({**line, "agent": os.getpid(), "said": box._said}), flush=True)
    box.close()


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[1] / "fleet"))
    os.environ["EDGEFL_MQTT_PASSWORD"] = "not for a box"
    main(Path(sys.argv[1]), sys.argv[2:])
    os._exit(0)
