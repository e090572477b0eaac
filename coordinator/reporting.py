"""`edgefl report`: everything that a run's folder tells, gathered and written down as one HTML file."""

import json
import time
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from coordinator import past
from coordinator.journal import Journal
from coordinator.start import products
from edgefl.config.listing import Shown, listing
from edgefl.config.origin import DEFAULT, Entry, from_json
from edgefl.config.schema import RunFile
from edgefl.config.toml_text import leaves
from edgefl.errors import EdgeflError
from edgefl.overview.overview import Overview
from edgefl.privacy.private import Private
from edgefl.protocol.address import without_password
from edgefl.report.contents import Contents, Spent
from edgefl.report.page import page
from edgefl.system.store import write_atomically
from edgefl.vector import Layout

NAME = "report.html"


def write(folder: Path, out: Path) -> Path:
    """Write the report of the run in this folder; gives back its file."""
    write_atomically(out, page(gather(folder)).encode(), private=False)
    return out


def gather(folder: Path) -> Contents:
    """All that a report is made from."""
    disk = past.run_disk(folder)
    book, overview = Journal(disk, reading=True), past.overview(disk)
    table: dict[str, Any] = json.loads(book.get("run") or "{}")
    run, private = table.get("run", {}), table.get("privacy") is not None
    return Contents(
        overview,
        written_at=time.time(),
        folder=disk.where(),
        file=_file(table, book.get("origins")),
        seed=run.get("seed"),
        software=json.loads(book.get("software") or "{}"),
        files={what: str(path) for what, path in products(Path(disk.where())).items()},
        private=private,
        spent=_spent(table, overview) if private else None,
        partitioned=table.get("task", {}).get("partition") is not None,
    )


def _file(table: Mapping[str, Any], origins: str | None) -> list[Shown]:
    """The run file in force, and who set what; of a run that did not note that, what is not as it is by default."""
    if origins is not None:
        return listing(from_json(origins), origin=True)
    usual = leaves(RunFile.model_construct().model_dump(mode="json"))
    entries = [
        Entry(way, without_password(value), DEFAULT if usual.get(way) == value else "the run file")
        for way, value in leaves(table).items()
    ]
    return listing(entries, origin=True)


def _spent(table: Mapping[str, Any], overview: Overview) -> Spent | None:
    """The bill of the device that gave most, as far as it follows from the answers that arrived."""
    try:
        run = RunFile.model_validate(table)
        algorithm = run.make_algorithm()
        bills = [bill for name in overview.devices if (bill := _bill(algorithm, name, overview)) is not None]
    except (EdgeflError, ValueError):  # of another version, or a bill that needs the model itself
        return None
    return max(bills, key=lambda bill: bill.updates, default=None)


def _bill(algorithm: object, device: str, overview: Overview) -> Spent | None:
    if not isinstance(algorithm, Private):
        return None
    samples = overview.devices[device].samples
    turns = overview.turns.of(device, len(overview.turns))
    prices = [price for turn in turns if (price := algorithm.price(turn.round, samples, Layout((), ()))) is not None]
    if not prices:
        return None
    cost = prices[0].of(len(prices))
    epsilon = cost["epsilon"] if isfinite(cost["epsilon"]) else None
    return Spent(device, len(prices), epsilon, cost["delta"], prices[0].mechanism.mechanism)
