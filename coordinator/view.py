"""What the operator sees while a run goes on: a live table, plain lines, or JSON."""

import json
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from coordinator.roster import Device
from coordinator.service import Coordinator
from edgefl.printable import printable

BLOCKS = " ▁▂▃▄▅▆▇█"
WIDTH = 48  # rounds in the little curve
ROWS = 24  # devices in the table; a larger fleet is counted below it


class View(Protocol):
    """Somebody who watches a run."""

    def tell(self, event: dict[str, Any]) -> None: ...

    def watching(self, coordinator: Coordinator, broker: str) -> AbstractContextManager[None]: ...


class JsonView:
    """One JSON object per event on stdout."""

    def tell(self, event: dict[str, Any]) -> None:
        print(json.dumps(event), flush=True)  # noqa: T201 - this is the result

    @contextmanager
    def watching(self, coordinator: Coordinator, broker: str) -> Iterator[None]:
        self.tell({"event": "started", "run": coordinator.name, "broker": broker, "key": coordinator.signer.key})
        yield


class PlainView:
    """One line per round on stdout: for logs and pipes."""

    def tell(self, event: dict[str, Any]) -> None:
        line = _line(event)
        if line:
            print(line, flush=True)  # noqa: T201 - this is the result

    @contextmanager
    def watching(self, coordinator: Coordinator, broker: str) -> Iterator[None]:
        print(f"run '{coordinator.name}' waits for devices at {broker}", flush=True)  # noqa: T201
        print(f"its models are signed by {coordinator.signer.key}", flush=True)  # noqa: T201
        yield


class LiveView:
    """A table that is drawn anew four times a second."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console()
        self.curve: list[float] = []
        self.last: dict[str, Any] = {}
        self.notes: list[str] = []
        self.coordinator: Coordinator | None = None
        self.broker = ""

    def tell(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "round":
                self.last = event
                if event["accuracy"] is not None:
                    self.curve.append(event["accuracy"])
            case "declined" | "refused" | "abandoned" | "disconnected":
                self.notes = [*self.notes[-2:], _note(event)]

    @contextmanager
    def watching(self, coordinator: Coordinator, broker: str) -> Iterator[None]:
        self.coordinator, self.broker = coordinator, broker
        self.console.print(f"models are signed by {coordinator.signer.key}", style="dim", highlight=False)
        with Live(console=self.console, refresh_per_second=4, get_renderable=self.draw):
            yield

    def draw(self) -> RenderableType:
        """The whole picture."""
        c = self.coordinator
        if c is None:
            return Text("")
        total = c.run_file.run.rounds
        done = self.last.get("round", 0)
        accuracy = self.last.get("accuracy")
        head = Table.grid(padding=(0, 2))
        head.add_row(
            Text(f"round {min(done + 1, total)} of {total}", style="bold"),
            ProgressBar(total=total, completed=done, width=24),
            Text("accuracy " + ("-" if accuracy is None else f"{accuracy:.1%}"), style="bold green"),
            Text(spark(self.curve[-WIDTH:]), style="green"),
        )
        traffic = f"sent up {size(c.total_up + c.bytes_up)}   sent down {size(c.total_down + c.bytes_down)}"
        parts: list[RenderableType] = [head, _devices(c), Text(traffic, style="dim"), Text(c.waiting())]
        parts += [Text(note, style="yellow") for note in self.notes]
        title = f"edgefl  {c.name}  {c.run_file.algorithm['name']}  {self.broker}"
        return Panel(Group(*parts), title=Text(title), title_align="left", width=min(100, self.console.width))


def choose(*, as_json: bool) -> View:
    """JSON when asked for, the live table on a terminal, lines otherwise."""
    if as_json:
        return JsonView()
    return LiveView() if sys.stdout.isatty() else PlainView()


def spark(values: list[float]) -> str:
    """A little curve between 0 and 1."""
    return "".join(BLOCKS[min(8, max(0, round(8 * v)))] for v in values)


def size(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.2f} GB"


def _devices(c: Coordinator) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("device", "doing", "samples", "ms/step", "sent"):
        table.add_column(title, justify="left" if title in ("device", "doing") else "right", no_wrap=True)
    known = sorted(c.inbox.devices.copy().values(), key=lambda d: d.id)
    for device in known[:ROWS]:
        pace = "-" if device.seconds_per_step is None else f"{1000 * device.seconds_per_step:.1f}"
        style = (
            "dim" if not device.online else "cyan" if device.doing.startswith(("training", "asked", "sending")) else ""
        )
        cells = device.id, _doing(device)[:48], str(device.presence.samples), pace, size(device.bytes_up)
        table.add_row(*(Text(printable(cell)) for cell in cells), style=style)  # a plain string would be read as markup
    if len(known) > ROWS:
        table.add_row(f"and {len(known) - ROWS} more", "", "", "", "", style="dim")
    return table


def _doing(device: Device) -> str:
    share = device.assembler.share() if device.doing == "sending" else None
    return device.doing if share is None else f"sending {share:.0%}"


def _line(event: dict[str, Any]) -> str:
    match event["event"]:
        case "round":
            accuracy = (
                "" if event["accuracy"] is None else f"  accuracy {event['accuracy']:.1%}  loss {event['loss']:.3f}"
            )
            if event.get("local_forgetting") is not None:
                accuracy += f"  forgot {event['local_forgetting']:.3f} in training"
                accuracy += f", {event['aggregation_forgetting']:.3f} in merging"
            traffic = f"up {size(event['bytes_up'])}  down {size(event['bytes_down'])}"
            return f"round {event['round']}  devices {event['devices']}{accuracy}  {traffic}  {event['seconds']:.2f} s"
        case "done":
            best = "" if event["best_accuracy"] is None else f"  best accuracy {event['best_accuracy']:.1%}"
            return f"done: {event['rounds']} rounds{best}  model {event['model_sha256'][:16]}"
        case "declined" | "refused" | "abandoned" | "disconnected":
            return _note(event)
        case _:
            return ""


def _note(event: dict[str, Any]) -> str:
    who = event.get("device") or (f"round {event['round']}" if "round" in event else "broker")
    return printable(f"{event['event']}: {who}: {event.get('reason', '')}")
