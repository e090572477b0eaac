"""The fork server: a process that has the engine loaded, waits, and forks a box whenever the agent needs one.

The agent forks it before it has a thread, a key or a connection. (A fork copies one thread only, and locks that other
threads hold stay locked.) A box shares nearly all memory with the fork server, and starts within milliseconds. The
fork server never runs a graph, so it lives as long as the agent.
"""

import ctypes
import gc
import os
import signal
import socket
from contextlib import suppress
from importlib import import_module
from typing import Any

from device_agent.box import inside
from device_agent.box.channel import Channel, ChannelClosed, pair
from device_agent.box.inside import BoxSetup
from edgefl.base.errors import RunError
from edgefl.job.config.agent_file import AgentFile
from edgefl.learn.algorithms import registry
from edgefl.learn.losses import loss
from edgefl.system import user_code, user_files
from edgefl.system.confinement import PR_SET_PDEATHSIG, prctl
from edgefl.system.resident_memory import release_code
from edgefl.wire.address import PASSWORD
from edgefl.wire.codecs import codec
from edgefl.wire.messages import (
    BROADCAST,
    CALL,
    GRAPHS,
    TO_COORDINATOR,
    TO_DEVICE,
    JobState,
    Manifest,
    Presence,
    WireVitals,
)

MOST = 1 << 20  # bytes of one order to it
# What reads and checks graphs, without onnxruntime: that is for the fork server alone.
ENGINE = tuple(
    f"edgefl.learn.models.{name}" for name in ("onnx_bindings", "onnx_handover", "onnx_masks", "state_names")
)
OPERATOR = (
    user_files.FOLDERS,
    user_code.PLACES,
)  # environment variables: where the operator's own code is, and its names
NOT_FOR_US = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
)  # Ctrl-C and systemd signal all of us: the agent decides


class ForkServer:
    """The agent's side of it."""

    def __init__(self) -> None:
        self._channel, theirs = pair()
        agent = os.getpid()
        _get_ready()
        gc.freeze()  # what the collector does not look at, it does not write to: so its pages stay shared
        self.pid = os.fork()
        if self.pid == 0:
            try:
                _die_with(agent)
                _serve(Channel(theirs))
            finally:
                os._exit(1)
        theirs.close()

    def prepare(self, setup: BoxSetup) -> None:
        """Say how boxes are to be set up; the fork server loads their engine meanwhile."""
        theirs = {name: os.environ.get(name, "") for name in OPERATOR}
        self._tell({"do": "prepare", "setup": setup.described(), "environment": theirs})

    def start(self, engine: str, theirs: socket.socket) -> int:
        """Fork a box that gets this end of a socket; return its process id."""
        self._tell({"do": "start", "engine": engine}, theirs.fileno())
        return int(self._answer())

    def end(self) -> int:
        """End the box if it has not ended; return its status as `os.waitpid` gives it."""
        self._tell({"do": "end"})
        return int(self._answer())

    def close(self) -> None:
        """End the fork server and its box."""
        self._channel.close()
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def _tell(self, what: dict[str, Any], handle: int | None = None) -> None:
        try:
            self._channel.send(what, handle=handle)
        except ChannelClosed:
            raise RunError(_gone()) from None

    def _answer(self) -> int:
        try:
            return int(self._channel.receive(0).about["number"])
        except ChannelClosed:
            raise RunError(_gone()) from None


def _gone() -> str:
    return (
        "the process that starts training has ended: was it killed, or does onnxruntime not load? start the agent again"
        " (`edgefl doctor` tries onnxruntime)"
    )


def _get_ready() -> None:
    """Load what agent and box both need before the fork, so that they share its memory.

    A process that imports a module or builds a pydantic check later writes to shared memory, which costs it some
    hundred kilobytes of its own each time.
    """
    for name in ENGINE:
        import_module(name)
    registry.algorithm({"name": "fedavg"})  # the first request looks up what other packages bring
    loss("cross_entropy")
    codec("float32", "up")
    for model in (AgentFile, JobState, Manifest, Presence, WireVitals):
        model.model_rebuild()
    for message in (BROADCAST, CALL, GRAPHS, TO_COORDINATOR, TO_DEVICE):
        message.rebuild()


def _die_with(parent: int) -> None:
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died in between
        os._exit(1)


def _serve(channel: Channel) -> None:
    """Do what the agent says until it is gone."""
    for number in NOT_FOR_US:
        signal.signal(number, signal.SIG_IGN)
    _let_go(keep=channel.end.fileno())
    _forget_password()
    box, setup = 0, BoxSetup()
    while True:
        try:
            parcel = channel.receive(MOST, handles=True)
        except ChannelClosed:
            os._exit(0)
        match parcel.about["do"]:
            case "prepare":
                setup = BoxSetup.read(parcel.about["setup"])
                os.environ.update(parcel.about["environment"])
                _load(setup)
            case "start" if parcel.handle is not None:
                box = _fork(channel, setup, parcel.about["engine"], parcel.handle)
                channel.send({"number": box})
            case "end":
                with suppress(ProcessLookupError):
                    os.kill(box, signal.SIGKILL)
                channel.send({"number": os.waitpid(box, 0)[1]})


def _load(setup: BoxSetup) -> None:
    """Load what every box needs; the operator's own code too, because a box cannot read files any more."""
    inside.load(setup.compute.backend)
    for name in setup.compute.factories:
        with suppress(Exception):  # the box reports the error when a job names it
            user_code.import_module(name, "compute.factories")
    gc.collect()
    gc.freeze()
    gc.enable()  # the process that forked us may have been at its imports
    release_code()


def _fork(channel: Channel, setup: BoxSetup, engine: str, handle: int) -> int:
    fork_server = os.getpid()
    if box := os.fork():
        os.close(handle)
        return box
    try:
        _die_with(fork_server)
        channel.close()
        _silence(0, 1, 2)
        inside.serve(Channel(socket.socket(fileno=handle)), setup, engine)
    finally:
        os._exit(1)


def _let_go(keep: int) -> None:
    """Close every file and socket of the agent but this one."""
    _silence(0, 1)
    os.closerange(3, keep)
    os.closerange(keep + 1, os.sysconf("SC_OPEN_MAX"))


def _silence(*handles: int) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for handle in handles:
        os.dup2(nowhere, handle)
    if nowhere > 2:
        os.close(nowhere)


def _forget_password() -> None:
    """Erase the broker's password from the copied environment, so that no box can reveal it."""
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_void_p
    if place := getenv(PASSWORD.encode()):
        ctypes.memset(place, 0, len(os.environ[PASSWORD].encode()))
        del os.environ[PASSWORD]
