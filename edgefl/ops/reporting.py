"""`edgefl report`: everything that a run's folder tells, gathered and written down as one HTML file."""

import time
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from coordinator.durable import run_history
from coordinator.durable.journal import Journal
from coordinator.durable.run_table import run_table
from coordinator.start import products
from edgefl.base.errors import CodeRefused, EdgeflError
from edgefl.base.vector import Layout
from edgefl.job.config.listing import Shown, listing
from edgefl.job.config.origin import DEFAULT, Entry, from_json
from edgefl.job.config.schema import RunFile
from edgefl.job.config.toml_text import leaves
from edgefl.learn.privacy.private import Private
from edgefl.ops.coordination import coordination
from edgefl.system.json_text import parse_json
from edgefl.system.store import write_atomically
from edgefl.watch.overview.overview import Overview
from edgefl.watch.report.contents import Contents, PrivacySpent
from edgefl.watch.report.page import page
from edgefl.wire.address import without_password

NAME = "report.html"


def write(folder: Path, out: Path) -> Path:
    """Write the report of the run in this folder; gives back its file."""
    write_atomically(out, page(gather(folder)).encode(), private=False)
    return out


def gather(folder: Path) -> Contents:
    """All that a report is made from."""
    disk = run_history.run_disk(folder)
    book = Journal(disk, reading=True)
    overview = run_history.overview(disk, book)
    for fact in coordination(overview.run, overview.at, disk.folder):
        overview.tell(fact)
    table = run_table(book) or {}
    run, private = table.get("run", {}), table.get("privacy") is not None
    spent, unknown = _spent(table, overview) if private else (None, "")
    return Contents(
        overview,
        written_at=time.time(),
        folder=disk.where(),
        file=_file(table, book.get("origins")),
        seed=run.get("seed"),
        software=_software(book),
        files={what: str(path) for what, path in products(Path(disk.where())).items()},
        private=private,
        spent=spent,
        unknown=unknown,
        partitioned=table.get("task", {}).get("partition") is not None,
    )


def _software(book: Journal) -> dict[str, str]:
    """Return what was installed, by name; nothing where the journal does not say that in words."""
    try:
        software = parse_json(book.get("software") or "{}")
    except ValueError:
        return {}
    words = software.items() if isinstance(software, dict) else ()
    return {name: word for name, word in words if isinstance(word, str)}


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


def _spent(table: Mapping[str, Any], overview: Overview) -> tuple[PrivacySpent | None, str]:
    """The bill of the device that gave most, as far as it follows from the answers that arrived.

    With it why it is not known here: a run's folder may not name code, but the run file on the command line may.
    """
    try:
        run = RunFile.model_validate(table)
        algorithm = run.make_algorithm()
        bills = [bill for name in overview.devices if (bill := _bill(algorithm, name, overview)) is not None]
    except CodeRefused:
        return None, "the run uses code of its own, which runs only if you name the run file: edgefl report run.toml"
    except (EdgeflError, ValueError):  # of another version, or a bill that needs the model itself
        return None, ""
    return max(bills, key=lambda bill: bill.updates, default=None), ""


def _bill(algorithm: object, device: str, overview: Overview) -> PrivacySpent | None:
    if not isinstance(algorithm, Private):
        return None
    samples = overview.devices[device].samples
    turns = overview.turns.of(device, len(overview.turns))
    prices = [price for turn in turns if (price := algorithm.price(turn.round, samples, Layout((), ()))) is not None]
    if not prices:
        return None
    cost = prices[0].of(len(prices))
    epsilon = cost["epsilon"] if isfinite(cost["epsilon"]) else None
    return PrivacySpent(device, len(prices), epsilon, cost["delta"], prices[0].mechanism.mechanism)
