"""The journal: what happened, where the rounds stand, and every answer that was promised a receipt.

One SQLite file in the run's folder, written ahead and synced before anything is said to a device. After any crash the
same command reads it and goes on with the round in hand.
"""

import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from coordinator.rounds import Abandon, Action, Event, Invite, Merge, Rounds, Rules
from edgefl.errors import StoreError
from edgefl.faults import before_write
from edgefl.store import OURS, make_folder

NAME = "journal.sqlite"
KEPT = 3  # merges whose answers are kept: as many as there are generations of checkpoints
TOLD: dict[type[Action], str] = {Invite: "asked", Merge: "closed", Abandon: "abandoned"}  # actions in the story

_SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS story (
    number INTEGER PRIMARY KEY, at REAL NOT NULL, what TEXT NOT NULL, device TEXT, round INTEGER, detail TEXT);
CREATE TABLE IF NOT EXISTS answers (
    round INTEGER NOT NULL, device TEXT NOT NULL, digest BLOB NOT NULL, frame BLOB NOT NULL,
    merged INTEGER, -- the round it was merged in: another one, when it came late
    PRIMARY KEY (round, device));
CREATE TABLE IF NOT EXISTS merges (round INTEGER PRIMARY KEY, devices TEXT NOT NULL, population INTEGER NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class Kept:
    """An answer as it came."""

    round: int
    device: str
    digest: bytes
    frame: bytes | bytearray


class Journal:
    """A run's memory. One thread writes it; everything in one `write` becomes durable together or not at all."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._reported():
            make_folder(path.parent)
            path.touch(OURS)  # SQLite gives its -wal and -shm the mode of this one
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.executescript(_SCHEMA)

    def close(self) -> None:
        self._db.close()

    # ---- writing -----------------------------------------------------------------------------------------------

    def write(
        self,
        event: Event,
        state: Rounds,
        answer: Kept | None = None,
        population: int | None = None,
        actions: tuple[Action, ...] = (),
    ) -> None:
        """What happened, where the rounds stand now, and the answer that came with it.

        When that closes the round, `population` is how many devices the fleet has, and everything that waits is merged.
        What comes of it is part of the story: who is asked, and what becomes of the round.
        """
        with self._transaction():
            self._tell(type(event).__name__.lower(), _plain(event))
            for action in actions:
                if type(action) in TOLD:
                    self._tell(TOLD[type(action)], _plain(action))
            self._set("rounds", _frozen(state))
            if answer is not None:
                self._db.execute(
                    "INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, NULL)",
                    (answer.round, answer.device, answer.digest, bytes(answer.frame)),
                )
            if population is not None:
                self._close(state, population)

    def amend(self, run: str, state: Rounds | None, changes: Sequence[dict[str, Any]]) -> None:
        """The run file that is in force from now on, where the rounds stand under it, and what is new in it."""
        with self._transaction():
            for change in changes:
                self._tell("changed", change)
            self._set("run", run)
            if state is not None:
                self._set("rounds", _frozen(state))

    def note(self, what: str, **detail: Any) -> None:
        """Something for the story alone."""
        with self._transaction():
            self._tell(what, detail)

    def set(self, **values: str) -> None:
        """Facts about the run."""
        with self._transaction():
            for name, value in values.items():
                self._set(name, value)

    # ---- reading -----------------------------------------------------------------------------------------------

    def get(self, name: str) -> str | None:
        row = self._db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def rounds(self, rules: Rules) -> Rounds | None:
        """Where the rounds stood."""
        text = self.get("rounds")
        return None if text is None else _thawed(text, rules)

    def answers(self, merged: int | None = None) -> tuple[Kept, ...]:
        """What was merged in a round, or waits to be, older rounds first."""
        rows = self._db.execute(
            "SELECT round, device, digest, frame FROM answers WHERE merged IS ? ORDER BY round, device", (merged,)
        )
        return tuple(Kept(*row) for row in rows)

    def merge(self, round: int) -> tuple[frozenset[str], int] | None:
        """Whose answers closed a round, and how many devices the fleet had then."""
        row = self._db.execute("SELECT devices, population FROM merges WHERE round = ?", (round,)).fetchone()
        return None if row is None else (frozenset(json.loads(row[0])), int(row[1]))

    def devices(self) -> frozenset[str]:
        """Everybody who ever joined."""
        return frozenset(
            device for (device,) in self._db.execute("SELECT DISTINCT device FROM story WHERE what = 'joined'")
        )

    def story(self, device: str | None = None, round: int | None = None) -> Iterator[tuple[float, str, dict[str, Any]]]:
        """What happened, in order: when, what, and the details."""
        rows = self._db.execute(
            "SELECT at, what, detail FROM story WHERE (?1 IS NULL OR device = ?1) AND (?2 IS NULL OR round = ?2)"
            " ORDER BY number",
            (device, round),
        )
        for at, what, detail in rows:
            yield at, what, json.loads(detail)

    # ---- inside ------------------------------------------------------------------------------------------------

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._reported():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                before_write()
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # a full disk has already undone it
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise StoreError(
                f"{self.path}: cannot be written ({error}); free some space, or choose another folder"
            ) from None

    def _tell(self, what: str, detail: dict[str, Any]) -> None:
        self._db.execute(
            "INSERT INTO story (at, what, device, round, detail) VALUES (?, ?, ?, ?, ?)",
            (time.time(), what, detail.get("device"), detail.get("round"), json.dumps(detail)),
        )

    def _close(self, state: Rounds, population: int) -> None:
        self._db.execute("UPDATE answers SET merged = ? WHERE merged IS NULL", (state.round,))
        whose = json.dumps(sorted(state.answered))
        self._db.execute("INSERT OR REPLACE INTO merges VALUES (?, ?, ?)", (state.round, whose, population))
        self._db.execute(
            "DELETE FROM merges WHERE round NOT IN (SELECT round FROM merges ORDER BY round DESC LIMIT ?)", (KEPT,)
        )
        self._db.execute("DELETE FROM answers WHERE merged < (SELECT MIN(round) FROM merges)")

    def _set(self, name: str, value: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))


def _plain(event: Event | Action) -> dict[str, Any]:
    return {key: value for key, value in asdict(event).items() if key != "at"}


def _frozen(state: Rounds) -> str:
    plain = {f.name: getattr(state, f.name) for f in fields(state) if f.name != "rules"}
    return json.dumps(plain, default=sorted)


def _thawed(text: str, rules: Rules) -> Rounds:
    plain = json.loads(text)
    plain["phase"] = {"overdue": "gathering"}.get(plain["phase"], plain["phase"])  # as it was called once
    for name in ("present", "answered", "declined", "busy"):
        plain[name] = frozenset(plain.get(name, ()))
    return Rounds(rules, **{**plain, "asked": tuple(plain["asked"])})
