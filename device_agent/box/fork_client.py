"""The agent's side of the box: it has a box forked when one is needed, hands orders in, and takes what comes out.

What comes out is believed no more than what comes from the network: it is bounded, and read as numbers and texts.
"""

import logging
import os
import resource
import signal
import time
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from threading import Lock
from typing import Any

from device_agent.box.channel import Channel, ChannelClosed, Parcel, packed, pair, unpacked
from device_agent.box.fork_server import ForkServer
from device_agent.box.inside import BoxSetup
from device_agent.decide.failure_reason import FailureReason, TrainingError
from device_agent.shell.order import Cancellation, Cancelled, TrainingOrder, Watch
from device_agent.shell.samples import Samples
from device_agent.shell.workers import check_enough, fitted, trained_on
from edgefl.base.errors import RemoteError, WireError
from edgefl.base.printable import printable
from edgefl.job.config.local_compute import LocalCompute
from edgefl.job.run.work import WorkResult
from edgefl.learn.data.dataset import Dataset
from edgefl.system.confinement import Confined, allow_mapping
from edgefl.system.resident_memory import release_code
from edgefl.system.shared_memory import Shared, share
from edgefl.wire.messages import TO_COORDINATOR, Answer, peek

log = logging.getLogger(__name__)

VECTORS = 64  # models' worth of numbers that an update, and what is kept with it, may have
STARTING = 300.0  # seconds for the first word of a box; importing torch from an SD card takes most of a minute
MOST = 1 << 40  # of anything that it counts
TEXT = 2_000  # characters of what it says


class Box:
    """Trains in a box, and is given to a Trainer; to interrupt it is to end the box, whatever it is at."""

    def __init__(
        self, fork_server: ForkServer, device: str, compute: LocalCompute, samples: Samples, most: int
    ) -> None:
        self._fork_server, self._device, self._compute = fork_server, device, compute
        self._samples, self._most = samples, most
        self._lock, self._unwanted = Lock(), False
        self.pid: int | None = None  # of the box; no other process has this number until we ask how it ended
        self._channel: Channel | None = None
        self._orders = 0  # that were handed over
        self._for: tuple[str, str] | None = None  # engine and run: each run has a box of its own
        self._has_graphs: str | None = None
        self._has_samples: Dataset | None = None
        self._shared: Shared | None = None
        self._lent = (0, 0)  # bytes of the samples that were lent to the box, the last two times
        self._said = ""
        fork_server.prepare(BoxSetup(device, compute))

    # ---- what a Trainer asks ------------------------------------------------------------------------------------

    def __call__(self, order: TrainingOrder, watch: Watch, cancelled: Cancellation) -> WorkResult:
        """Return the work that was ordered."""
        cancelled.covers(self)
        manifest = order.item.manifest
        data = self._samples.current(lambda data: fitted(self._device, data, manifest))
        check_enough(trained_on(data, self._samples, order), order)
        try:
            channel = self._opened(order)
            self._hand_over(channel, order)
            self._tidy()
            return self._outcome(channel, order, watch)
        except TrainingError as failed:
            if failed.verdict.told.startswith("box."):  # out of memory, and a process that holds it may hold it still
                self._kill()
                self._wait()
            raise
        except ChannelClosed as why:
            raise self._ended(str(why)) from None
        except TimeoutError:
            self._kill()
            self._wait()
            limit = f"{_seconds(order, self._compute):.0f} s (compute.task_seconds here, or the task's own)"
            raise RemoteError(
                "box.time", f"training did not end within {limit}, and was ended", free_of_data=True
            ) from None

    def interrupt(self) -> None:
        """End what runs, at once; from any thread."""
        with self._lock:
            self._unwanted = True
            self._kill()

    def resume(self) -> None:
        """Work may begin again."""
        with self._lock:
            self._unwanted = False

    # ---- its life -----------------------------------------------------------------------------------------------

    def warm(self) -> None:
        """Have one before the first order comes."""
        try:
            self._open(self._compute.backend if self._compute.backend == "torch" else "onnx")
        except (ChannelClosed, TimeoutError) as why:
            log.warning("no box yet why=%s", self._ended(str(why)))

    def _open(self, engine: str, run: str = "") -> Channel:
        """A box for this run; a new one if there is none, or only one that worked for another run."""
        if self._for == (engine, ""):
            self._for = engine, run
        if self._channel is not None and (self._for != (engine, run) or self._channel.dead()):
            self._kill()
            self._wait()
        if self._channel is None:
            self._channel = self._start(engine)
            self._for = engine, run
            self._tell_of(self._channel.receive(0).about)
        return self._channel

    def close(self) -> None:
        """End what there is."""
        self._kill()
        self._fork_server.close()
        if self._channel is not None:
            self._channel.close()

    def _start(self, engine: str) -> Channel:
        with self._lock:
            if self._unwanted:
                raise Cancelled
            with ExitStack() as until_started:
                channel, theirs = pair()
                until_started.callback(channel.close)
                with theirs:
                    self.pid = self._fork_server.start(engine, theirs)
                until_started.pop_all()
        self._has_graphs = self._has_samples = None
        self._lent = (0, 0)
        channel.end.settimeout(STARTING)
        return channel

    def _tell_of(self, about: dict[str, Any]) -> None:
        """What the kernel gave the box: said once, and again if that changes."""
        try:
            confined = Confined(*(tuple(str(name)[:TEXT] for name in about[key]) for key in ("got", "missing")))
        except (KeyError, TypeError):
            raise ChannelClosed("it did not report how it is confined") from None
        if str(confined) != self._said:
            self._said = str(confined)
            (log.warning if confined.missing else log.info)("box pid=%d has %s", self.pid, printable(self._said))

    def _kill(self) -> None:
        if self.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def _wait(self) -> int:
        """How the box ended, whose number is then free again."""
        with self._lock:
            status, self.pid = self._fork_server.end(), None
        if self._channel is not None:
            self._channel.close()
        self._channel = None
        return status

    def _ended(self, why: str) -> Exception:
        """What to say of a box that is there no more, or cannot be understood."""
        if self.pid is None:
            return Cancelled() if self._unwanted else RemoteError("box.crashed", f"it could not be started ({why})")
        dead = self._channel is None or self._channel.dead()
        status = self._wait()
        if self._unwanted:
            return Cancelled()
        if not dead:
            return RemoteError("box.malformed", f"the process that trained sent an answer that cannot be read ({why})")
        return RemoteError("box.crashed", _how(status), free_of_data=True)

    def _tidy(self) -> None:
        """While a box trains for the first and the second time: code that only connecting and answering once needed."""
        self._orders += 1
        if self._orders <= 2:
            release_code()

    # ---- an order, and what comes of it -------------------------------------------------------------------------

    def _opened(self, order: TrainingOrder) -> Channel:
        engine = "torch" if self._compute.backend == "torch" or order.graphs is None else "onnx"
        channel = self._open(engine, order.task.run_key)
        channel.end.settimeout(STARTING)
        if self._has_samples is not self._samples.data:
            self._lend(channel)
            self._has_samples = self._samples.data
        return channel

    def _lend(self, channel: Channel) -> None:
        """Let the box read the samples; they are in memory once, for both."""
        data, held_back, counted = self._samples.data, self._samples.held_back, self._samples.counted
        if self._shared is None or data.x is not self._shared.arrays[0]:
            if self._shared is not None:
                self._shared.close()
            aside = [] if counted is None else [counted.x, counted.y]
            self._shared = share([data.x, data.y, *aside])
            x, y, *others = self._shared.arrays
            self._samples.data = data = replace(data, x=x, y=y)
            if counted is not None:
                self._samples.counted = replace(counted, x=others[0], y=others[1])
            if held_back is counted:
                self._samples.held_back = self._samples.counted
        about: dict[str, Any] = {"classes": data.classes, "class_names": data.class_names, "numbered": data.numbered}
        about |= {
            "target_names": data.target_names,
            "describes": self._samples.describes,
            "left_out": self._samples.left_out,
            "form": data.form.described(),
        }
        before, held = self._lent  # those before the ones it holds, which it has let go of, and these
        allow_mapping(self.pid or 0, self._shared.size - before)
        self._lent = held, self._shared.size
        channel.send({"kind": "samples", "arrays": self._shared.described, **about}, handle=self._shared.handle)

    def _hand_over(self, channel: Channel, order: TrainingOrder) -> None:
        """Say what is to be done; graphs are said once."""
        news = order.graphs is not None and self._has_graphs != order.task.graphs
        described, arrays = packed(order.state)
        optional = [order.previous, order.graphs if news else None]
        parts = [order.item.manifest.model_dump_json().encode(), order.item.frame]
        about: dict[str, Any] = {"task": asdict(order.task), "graphs": order.task.graphs, "graphs_come": news}
        about |= {"fewest": order.fewest, "hidden": order.hidden, "keeps": order.keeps}
        self._allow_time(order)
        channel.end.settimeout(_seconds(order, self._compute))
        channel.send(
            {"kind": "order", **about, "previous": order.previous is not None, "state": described, "most": order.most},
            [*parts, *(part for part in optional if part is not None), *arrays],
        )
        self._has_graphs = order.task.graphs

    def _allow_time(self, order: TrainingOrder) -> None:
        """So much more time of the processor; on the clock the same is waited for an answer."""
        seconds = _seconds(order, self._compute) * self._compute.threads
        with suppress(OSError, ValueError):
            used = cpu_seconds(self.pid or 0)
            resource.prlimit(self.pid or 0, resource.RLIMIT_CPU, (int(used + seconds) + 1, resource.RLIM_INFINITY))

    def _outcome(self, channel: Channel, order: TrainingOrder, watch: Watch) -> WorkResult:
        most = max(self._most, VECTORS * 4 * order.item.manifest.layout.layout().size)
        end = time.monotonic() + _seconds(order, self._compute)
        while True:
            parcel = channel.receive(most, until=end)
            if parcel.about.get("kind") != "step":
                return _done(parcel, self._device, order)
            watch(_number(parcel.about, "steps", int))


def cpu_seconds(pid: int) -> float:
    """The time of the processor that a process has used."""
    return time.clock_gettime((~pid << 3) | 2)  # the number of its clock, as clock_getcpuclockid makes it


def _seconds(order: TrainingOrder, compute: LocalCompute) -> float:
    """How long the task may take: far longer than it was given, if it was given a time."""
    asked = order.task.seconds
    return compute.task_seconds if asked is None else min(compute.task_seconds, 10 * asked + 600)


def _done(parcel: Parcel, device: str, order: TrainingOrder) -> WorkResult:
    about = parcel.about
    match about.get("kind"), parcel.parts:
        case "done", [frame, *arrays]:
            _check_answer(frame, device, order)
            state, own = _list(about, "state"), _list(about, "own")
            kept = unpacked(state, arrays[: len(state)])
            mine = unpacked(own, arrays[len(state) :])
            pace = _number(about, "seconds_per_step", float), _number(about, "steps", int)
            return WorkResult(bytes(frame), kept, *pace, mine if order.keeps else {})
        case "failed", []:
            texts = (str(about.get(name, "")) for name in ("reason", "told", "trace"))
            reason, told, trace = (text[: 10 * TEXT] for text in texts)
            raise TrainingError(
                FailureReason(printable(reason[:TEXT]), printable(told[:TEXT]), bool(about.get("mistake")), trace)
            )
    raise ChannelClosed("neither done nor failed")


def _check_answer(frame: bytearray, device: str, order: TrainingOrder) -> None:
    """What this device will sign is an answer to this task: no other message, which could ask for a certificate."""
    try:
        answer, _ = peek(TO_COORDINATOR, frame)
    except WireError as error:
        raise ChannelClosed(f"an update that cannot be read: {error}") from None
    task = order.task
    asked = device, task.job, task.run_id, task.round, task.model, task.purpose
    if not isinstance(answer, Answer) or asked != (
        answer.device,
        answer.job,
        answer.run_id,
        answer.round,
        answer.model,
        answer.purpose,
    ):
        raise ChannelClosed(f"'{answer.kind}' where an answer to round {task.round} was asked for")


def _list(about: dict[str, Any], name: str) -> list[Any]:
    value: Any = about.get(name, [])
    if not isinstance(value, list):
        raise ChannelClosed(f"'{name}' is no list")
    return value


def _number(about: dict[str, Any], name: str, kind: type[int] | type[float]) -> Any:  # Any: of that kind
    value: Any = about.get(name)
    if type(value) is not kind or not 0 <= value <= MOST:  # nor is NaN
        raise ChannelClosed(f"'{name}' is no number")
    return value


def _how(status: int) -> str:
    """How a process ended, for people."""
    if not os.WIFSIGNALED(status):
        return f"the process that trained ended with exit code {os.waitstatus_to_exitcode(status)}"
    number = os.WTERMSIG(status)
    cause = {
        signal.SIGKILL: ": it was killed, or the kernel ran out of memory",
        signal.SIGXCPU: ": it used more time of the processor than it was given",
    }.get(signal.Signals(number), "")
    return f"the process that trained ended with {signal.Signals(number).name} ({signal.strsignal(number)}){cause}"
