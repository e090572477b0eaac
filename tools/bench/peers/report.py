"""What the comparison says: one table for a terminal or for docs/results/speed.md, and where we lose."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from edgefl.ops.bench.report import heading
from edgefl.ops.bench.surroundings import measured_on
from tools.bench.peers.compare import PeerBench, Row
from tools.bench.peers.flower import Interpreter
from tools.bench.peers.loads import BATCH, SAMPLES, SIMULATOR

REFERENCES = ("Flower", "bare torch loop", "bare gRPC", "bare paho")  # the first that was measured for a load
WORDS = (0, 1, 8)  # columns that are no numbers
PACKAGES = ("edgefl", "paho-mqtt", "numpy", "onnxruntime", "torch")


def facts(flower: Interpreter, mosquitto: str, place: Path) -> dict[str, Any]:
    """The machine, and the versions of everything that was measured."""
    theirs = {"flwr": flower.flwr, "grpcio": flower.grpc, "torch of Flower's clients": flower.torch}
    versions = {"mosquitto": mosquitto, **{name: version or "not installed" for name, version in theirs.items()}}
    return measured_on(place, PACKAGES, versions)


def reference(rows: Sequence[Row], load: str) -> Row | None:
    """Whom the others are compared with."""
    measured = {row.side: row for row in rows if row.load == load and row.turns}
    return next((measured[name] for name in REFERENCES if name in measured), None)


def cells(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    """The table: its head, then a line for each row; ratios are to the reference of the same load."""
    yield "job", "side", "wall ms", "CPU ms", "client MB", "wall", "CPU", "memory", "compared with"
    for row in rows:
        if not row.turns:
            yield row.load, row.side, *["-"] * 6, row.why_not
            continue
        typical, other = row.typical, reference(rows, row.load)
        numbers = (1000 * typical.wall, 1000 * typical.cpu, typical.client_mb)
        ratios = _ratios(row, other) if other else [None] * 3
        shown = (*map(_number, numbers), *("-" if ratio is None else f"{ratio:.2f}" for ratio in ratios))
        yield row.load, row.side, *shown, other.side if other else "-"


def lost(rows: Sequence[Row]) -> Iterator[str]:
    """Where a side of ours needs more than its reference."""
    for row in rows:
        other = reference(rows, row.load)
        if not row.side.startswith("edgefl") or not row.turns or other is None:
            continue
        worse = zip(("wall time", "CPU time", "memory"), _ratios(row, other), strict=True)
        if words := [f"{ratio:.2f} times the {what}" for what, ratio in worse if ratio and ratio > 1.005]:
            yield f"{row.load}, {row.side}: {', '.join(words)} of {other.side}"


def aligned(rows: Sequence[Row]) -> Iterator[str]:
    """The table for a terminal."""
    table = list(cells(rows))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for line in table:
        padded = (
            c.ljust(w) if i in (0, 1, 8) else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True))
        )
        yield "  ".join(padded).rstrip()


def markdown(plan: PeerBench, rows: Sequence[Row], about: dict[str, Any]) -> str:
    """The whole page."""
    head, *lines = (f"| {' | '.join(line)} |" for line in cells(rows))
    return PAGE.format(
        date=about["date"],
        machine=f"{about['processor']}, {heading(about)}",
        versions=", ".join(f"{name} {version}" for name, version in about["versions"].items()),
        file_system=about["file_system"],
        devices=plan.devices,
        turns=plan.turns,
        loads="\n".join(f"- **{load.title}**" for load in plan.loads),
        simulator=f"- **{SIMULATOR}**: 100 devices, 10 a round, one epoch of {SAMPLES} samples, batch {BATCH}",
        table="\n".join([head, "|---|---|" + "---:|" * 6 + "---|", *lines]),
        losses="\n".join(f"- {one}" for one in lost(rows)) or "- nowhere in this run",
    )


PAGE = """\
# Speed beside others

`python -m tools.bench peers` wrote this page on {date}: {machine}.
Versions: {versions}. Journals and spools were on {file_system}.

{devices} client processes on this one machine. Medians of {turns} turns in which the sides alternate (wall: the median
round of a turn), so what else the machine did hit all of them. CPU is that of a round in all processes: clients,
server, broker. Memory is that of a client with its children, when a turn ends. The ratios are those of a row to the row
of the side in the last column: below 1 is better.

{loads}
{simulator}

{table}

## Where we lose

{losses}

## What the sides are

- **edgefl**: the real coordinator with its journal, agents with their spools and signatures, over Mosquitto; those that
  train do it in their box, on onnxruntime. *int8*: the same with `wire.codec = "int8"`, both ways.
- **Flower**: its `start_server`, `FedAvg` and `start_client`: one gRPC stream for each client, nothing on disk, neither
  TLS nor signatures; clients that train do it with torch. Flower has deprecated these functions since 1.13 and still
  ships them. They are its leanest way: SuperLink and SuperNode, which it prescribes instead, poll, and start a process
  for each client and round; they are not measured here.
- **bare gRPC**, **bare paho**: the same bytes without a framework: no arrays, no mean, nothing checked, nothing kept;
  in J3 too they only move bytes. They show the least that a transport costs, and are of no other use.
- **bare torch loop**: one device after another, in one process on one thread, and the mean of their weights.

Samples are made up and have the shape of MNIST's; the time does not depend on what they show. Flower has a Python of
its own, because its pins are not ours:

```sh
python3 -m venv build/flower && build/flower/bin/pip install flwr torch
python -m tools.bench peers --flower build/flower/bin/python --report docs/results/speed.md
```
"""


def _ratios(row: Row, other: Row) -> Sequence[float | None]:
    """Of wall time, CPU time and memory."""
    a, b = row.typical, other.typical
    memory = None if a.client_mb is None or b.client_mb is None else a.client_mb / b.client_mb
    return a.wall / b.wall, a.cpu / b.cpu, memory


def _number(value: float | None) -> str:
    """Three figures, and never an exponent."""
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
