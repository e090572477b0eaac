"""What is worth a look: the last notes, each once, however often it happens."""

from collections import OrderedDict
from dataclasses import dataclass, field

from edgefl.watch.overview.rows import Kind, Note

NOTES = 100


@dataclass(slots=True)
class Notes:
    """The newest last."""

    _notes: OrderedDict[tuple[str | None, str], Note] = field(default_factory=OrderedDict)

    def add(self, kind: Kind, text: str, device: str | None, at: float, sequence: int) -> None:
        """One that was there already is counted, and moves to the end."""
        note = self._notes.pop((device, text), None) or Note(text, kind, device, at, at, 0)
        note.at, note.times, note.sequence = at, note.times + 1, sequence
        self._notes[device, text] = note
        if len(self._notes) > NOTES:
            self._notes.popitem(last=False)

    def since(self, sequence: int) -> list[Note]:
        """Those that are new, or happened again."""
        return [note for note in self._notes.values() if note.sequence > sequence]
