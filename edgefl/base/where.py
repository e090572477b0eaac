"""The language of `where`: which devices are meant, by their labels and properties.

    site == 'north' and memory_mb >= 900
    camera in ['v2', 'v3'] or not (outdoor == true)

    expression = term { "or" term }
    term       = factor { "and" factor }
    factor     = "not" factor | "(" expression ")" | comparison
    comparison = name ( "==" | "!=" | "<" | "<=" | ">" | ">=" ) value
               | name [ "not" ] "in" "[" value { "," value } "]"
    value      = 'text' | "text" | number | true | false

Rules
  1. A comparison with a name that the device does not have is false, `!=` and `not in` too.
  2. Text that reads as a number is compared with a number as one: the label `floor=3` is greater than 2.
  3. Texts are ordered by their letters, and runs of digits in them by their value: '0.9' < '0.10'.
  4. Values of two kinds are not equal, and none is less than the other.

Nothing is evaluated by Python: text becomes a tree of the four classes below, and the tree is asked.
"""

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

from edgefl.base.errors import ConfigError, nearest

Value: TypeAlias = str | float | bool

LONGEST = 1000  # characters of an expression
DEEPEST = 20  # parentheses and `not` within one another
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,62}")
NUMBER = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?")
WORDS = ("and", "or", "not", "in", "true", "false")  # which no label can be called

_TOKEN = re.compile(
    rf"""(?P<space>[ \t]+)|(?P<number>{NUMBER.pattern})|(?P<name>{NAME.pattern})
    |(?P<text>'[^']*'|"[^"]*")|(?P<sign>==|!=|<=|>=|<|>|\(|\)|\[|\]|,)""",
    re.VERBOSE,
)
_ORDERED: Mapping[str, Callable[[Any, Any], bool]] = {  # Any: two values of one kind
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_COMPARED = ("==", "!=", *_ORDERED)


@dataclass(frozen=True, slots=True)
class LabelComparison:
    """A name, and what its value is compared with; several values with `in` and `not in`."""

    name: str
    sign: str
    values: tuple[Value, ...]

    def holds(self, values: Mapping[str, Value]) -> bool:
        """Return whether the device with these values has the name, and the comparison is true."""
        if self.name not in values:
            return False
        value = values[self.name]
        if self.sign in _ORDERED:
            pair = _ordered(value, self.values[0])
            return pair is not None and _ORDERED[self.sign](*pair)
        return any(_equal(value, one) for one in self.values) is (self.sign in {"==", "in"})

    def named(self) -> Iterator[str]:
        yield self.name


@dataclass(frozen=True, slots=True)
class Negation:
    """The opposite of one expression."""

    part: "Node"

    def holds(self, values: Mapping[str, Value]) -> bool:
        return not self.part.holds(values)

    def named(self) -> Iterator[str]:
        yield from self.part.named()


@dataclass(frozen=True, slots=True)
class Conjunction:
    """Expressions joined by `and`."""

    parts: tuple["Node", ...]

    def holds(self, values: Mapping[str, Value]) -> bool:
        return all(part.holds(values) for part in self.parts)

    def named(self) -> Iterator[str]:
        for part in self.parts:
            yield from part.named()


@dataclass(frozen=True, slots=True)
class Disjunction:
    """Expressions joined by `or`."""

    parts: tuple["Node", ...]

    def holds(self, values: Mapping[str, Value]) -> bool:
        return any(part.holds(values) for part in self.parts)

    def named(self) -> Iterator[str]:
        for part in self.parts:
            yield from part.named()


Node: TypeAlias = LabelComparison | Negation | Conjunction | Disjunction


@dataclass(frozen=True, slots=True)
class Where:
    """An expression that was read: which devices it means."""

    text: str
    tree: Node

    def matches(self, values: Mapping[str, Value]) -> bool:
        """Return whether the device with these labels and properties is meant."""
        return self.tree.holds(values)

    def names(self) -> frozenset[str]:
        """Return every label or property that it names."""
        return frozenset(self.tree.named())

    def objection(self, values: Mapping[str, Value]) -> str:
        """Return why the device is not meant, as the values of all names in the expression; empty if it is."""
        if self.matches(values):
            return ""
        return ", ".join(
            f"{name} is {_shown(values[name])}" if name in values else f"it has no '{name}'"
            for name in dict.fromkeys(self.tree.named())
        )

    def check_names(self, known: Iterable[str], key: str = "where", remedy: str = "") -> None:
        """Raise `ConfigError` if the expression has a name that no device has; `known` are the names they have."""
        has = frozenset(known)
        for name in dict.fromkeys(self.tree.named()):
            if name not in has:
                so = remedy or f"`edgefl fleet label DEVICE {name}=VALUE` gives it to one"
                raise ConfigError(f"{key}: no device has a label '{name}'; {nearest(name, has)}; {so}")


def parse(text: str, key: str = "where") -> Where:
    """Return what an expression means; raise `ConfigError` with the place of the first mistake."""
    if len(text) > LONGEST:
        raise ConfigError(f"{key}: {len(text)} characters; an expression has at most {LONGEST}")
    return Where(text, _Parser(text, key).whole())


@dataclass(frozen=True, slots=True)
class _Token:
    """A part of the text: what it is, and the place of its first character."""

    kind: str  # number, name, text, sign, or end
    text: str
    place: int

    def __str__(self) -> str:
        return f"`{self.text}`" if self.kind != "end" else "its end"


class _Parser:
    """Recursive descent, a method for each line of the grammar."""

    def __init__(self, text: str, key: str) -> None:
        self.text, self.key = text, key
        self.tokens = list(self._tokens())
        self.next = 0

    def whole(self) -> Node:
        if self.here.kind == "end":
            self._wrong("nothing is there", "write a comparison, as site == 'north', or leave it out")
        tree = self._expression(0)
        if self.here.kind != "end":
            self._wrong(f"{self.here} stands behind a whole expression", "join expressions with `and` or `or`")
        return tree

    @property
    def here(self) -> _Token:
        return self.tokens[self.next]

    def _tokens(self) -> Iterator[_Token]:
        place = 0
        while place < len(self.text):
            token = _TOKEN.match(self.text, place)
            if token is None:
                self._unreadable(place)
            if token.lastgroup != "space":
                yield _Token(token.lastgroup or "", token.group(), place)
            place = token.end()
        yield _Token("end", "", place)

    def _unreadable(self, place: int) -> NoReturn:
        letter = self.text[place]
        if letter in "'\"":
            self._wrong("a text without its closing quote", f"end it with {letter}", place)
        if letter == "=":
            self._wrong("one `=`", "write == to compare", place)
        self._wrong(f"`{letter}` cannot be read", "it takes names, texts in quotes, numbers and == != < <= > >=", place)

    def _take(self, *texts: str) -> bool:
        """Go on behind this word or sign, if it is one of these."""
        if self.here.kind in {"name", "sign"} and self.here.text in texts:
            self.next += 1
            return True
        return False

    def _expression(self, depth: int) -> Node:
        parts = [self._term(depth)]
        while self._take("or"):
            parts.append(self._term(depth))
        return parts[0] if len(parts) == 1 else Disjunction(tuple(parts))

    def _term(self, depth: int) -> Node:
        parts = [self._factor(depth)]
        while self._take("and"):
            parts.append(self._factor(depth))
        return parts[0] if len(parts) == 1 else Conjunction(tuple(parts))

    def _factor(self, depth: int) -> Node:
        if depth > DEEPEST:
            self._wrong(f"more than {DEEPEST} parentheses and `not` within one another", "write it flatter")
        if self._take("not"):
            return Negation(self._factor(depth + 1))
        if self._take("("):
            inside = self._expression(depth + 1)
            if not self._take(")"):
                self._wrong(f"a `)` is missing before {self.here}", "close the parenthesis")
            return inside
        return self._comparison()

    def _comparison(self) -> Node:
        token = self.here
        if token.kind != "name" or token.text in WORDS:
            self._wrong(f"{token} is not the name of a label", "begin a comparison with a name, as site == 'north'")
        self.next += 1
        negated = self._take("not")
        if self._take("in"):
            return LabelComparison(token.text, "not in" if negated else "in", self._list())
        sign = self.here
        if negated or sign.text not in _COMPARED:
            example = f"{token.text} == 'north'"
            self._wrong(f"no comparison behind `{token.text}`", f"write == != < <= > >= or in, as {example}")
        self.next += 1
        place = self.here.place
        value = self._value()
        if isinstance(value, bool) and sign.text in _ORDERED:
            self._wrong(f"`{sign.text}` with true or false", "write == or !=", place)
        return LabelComparison(token.text, sign.text, (value,))

    def _list(self) -> tuple[Value, ...]:
        if not self._take("["):
            self._wrong(f"no list behind `in`, but {self.here}", "write it in brackets, as in ['v2', 'v3']")
        values = [self._value()]
        while self._take(","):
            values.append(self._value())
        if not self._take("]"):
            self._wrong(f"a `]` is missing before {self.here}", "close the bracket")
        return tuple(values)

    def _value(self) -> Value:
        token = self.here
        if token.kind == "text":
            value: Value = token.text[1:-1]
        elif token.kind == "number":
            value = float(token.text)
        elif token.text in {"true", "false"}:
            value = token.text == "true"
        elif token.kind == "name":
            self._wrong(f"`{token.text}` is no value", f"put a text in quotes: '{token.text}'")
        else:
            self._wrong(f"no value before {token}", "write a text in quotes, a number, true or false")
        self.next += 1
        return value

    def _wrong(self, problem: str, remedy: str, place: int | None = None) -> NoReturn:
        at = (self.here.place if place is None else place) + 1
        raise ConfigError(f'{self.key}: {problem}, at character {at} of "{self.text}"; {remedy}')


# ── values ───────────────────────────────────────────────────────────────────────────────────────────────────


def _alike(one: Value, other: Value) -> tuple[Value, Value] | None:
    """Return both as values of one kind; None if they are of two."""
    if isinstance(one, str) and isinstance(other, str):
        return one, other
    if isinstance(one, str):
        pair = _alike(other, one)
        return None if pair is None else (pair[1], pair[0])
    if isinstance(other, str):
        read = _read(other)
        return None if isinstance(read, str) else _alike(one, read)
    return (one, other) if isinstance(one, bool) is isinstance(other, bool) else None


def _read(text: str) -> Value:
    """Return the number, or true or false, that a text says; the text itself if it says neither."""
    if text in {"true", "false"}:
        return text == "true"
    return float(text) if NUMBER.fullmatch(text) else text


def _equal(one: Value, other: Value) -> bool:
    pair = _alike(one, other)
    return pair is not None and pair[0] == pair[1]


def _ordered(one: Value, other: Value) -> tuple[object, object] | None:
    """Return both as Python orders them; None if they have no order."""
    match _alike(one, other):
        case None | (bool(), _):
            return None
        case (str() as first, str() as second):
            return _natural(first), _natural(second)
        case pair:
            return pair


def _natural(text: str) -> list[str | int]:
    """Return its letters and its numbers in turn."""
    return [int(part) if place % 2 else part for place, part in enumerate(re.split(r"([0-9]+)", text))]


def _shown(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"'{value}'" if isinstance(value, str) else f"{value:.15g}"
