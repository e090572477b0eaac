"""Topics and filters in a tree of their levels, so that finding what fits does not look at all the others."""

from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class _Node(Generic[T]):
    __slots__ = ("below", "values")

    def __init__(self) -> None:
        self.below: dict[str, _Node[T]] = {}
        self.values: dict[T, None] = {}


class TopicTree(Generic[T]):
    """Values under topics, or under filters with `+` and `#`."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()

    def add(self, path: str, value: T) -> None:
        node = self._root
        for level in path.split("/"):
            node = node.below.setdefault(level, _Node())
        node.values[value] = None

    def remove(self, path: str, value: T) -> None:
        """Forget the value there, if it is there, and branches that then bear nothing."""
        levels, nodes = path.split("/"), [self._root]
        for level in levels:
            below = nodes[-1].below.get(level)
            if below is None:
                return
            nodes.append(below)
        nodes[-1].values.pop(value, None)
        for parent, level, node in zip(nodes[-2::-1], levels[::-1], nodes[:0:-1], strict=True):
            if node.values or node.below:
                return
            del parent.below[level]

    def matching(self, topic: str) -> Iterator[T]:
        """The values under filters that this topic falls under; one of two such filters comes twice."""
        nodes = [self._root]
        for level in topic.split("/"):
            for node in nodes:
                if (all_below := node.below.get("#")) is not None:
                    yield from all_below.values
            nodes = [child for node in nodes for key in (level, "+") if (child := node.below.get(key)) is not None]
        for node in nodes:
            yield from node.values
            if (all_below := node.below.get("#")) is not None:  # `a/#` takes in `a` itself
                yield from all_below.values

    def under(self, filter: str) -> Iterator[T]:
        """The values under topics that fall under this filter."""
        nodes, levels = [self._root], filter.split("/")
        for level in levels:
            if level == "#":
                break
            if level == "+":
                nodes = [below for node in nodes for below in node.below.values()]
            else:
                nodes = [below for node in nodes if (below := node.below.get(level)) is not None]
        while nodes:
            for node in nodes:
                yield from node.values
            nodes = [below for node in nodes for below in node.below.values()] if levels[-1] == "#" else []
