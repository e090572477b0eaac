"""Which rows have changed, and by which fact: a reader that has some of them asks for the rest."""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class RecentlyChanged:
    """Devices by their names and rounds by their numbers, the last one that changed last."""

    _keys: OrderedDict[str | int, int] = field(default_factory=OrderedDict)

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: str | int, sequence: int) -> None:
        self._keys[key] = sequence
        self._keys.move_to_end(key)

    def drop(self, key: str | int) -> None:
        """There is no such row any more."""
        self._keys.pop(key, None)

    def since(self, sequence: int) -> tuple[list[int], list[str]]:
        """Rounds and devices, in order; it takes as long as there are such rows."""
        keys = list(self._newer(sequence))
        return sorted(k for k in keys if isinstance(k, int)), sorted(k for k in keys if isinstance(k, str))

    def _newer(self, sequence: int) -> Iterator[str | int]:
        for key, changed in reversed(self._keys.items()):
            if changed <= sequence:
                return
            yield key
