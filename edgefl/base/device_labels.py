"""Labels, which an operator gives to devices, and properties, which devices measure: the names that `where` knows.

A label is the operator's word and cannot be changed by a device. A property is what the device says of itself, so it
may make a device be asked or not, and never gives it a right. No label can have the name of a property.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from edgefl.base.errors import ConfigError
from edgefl.base.where import NAME, WORDS, Value

DEVICE = "device"  # the name of the device itself, which its certificate or key proves
PROPERTIES: Mapping[str, str] = {  # by name: what it is
    "arch": "the processor's kind, as `uname -m` says",
    "memory_mb": "the machine's memory in MiB, what the system can use of it",
    "version": "of edgefl",
    "backend": "what it trains with: onnx, torch, or gateway",
    "samples": "how many it trains on",
}
LONGEST = 100  # characters of a label's value
MOST = 50  # labels of one device


@dataclass(frozen=True, slots=True)
class Properties:
    """What a device says of itself; what is not known is empty or None."""

    arch: str = ""
    memory_mb: int | None = None
    version: str = ""
    backend: str = ""
    samples: int | None = None

    def values(self) -> dict[str, Value]:
        """Return those that are known, by name."""
        each = ((name, getattr(self, name)) for name in PROPERTIES)
        return {name: value for name, value in each if value not in ("", None)}


def values_of(device: str, labels: Mapping[str, str], properties: Properties) -> dict[str, Value]:
    """Return everything that `where` can compare of one device; a label goes before a property."""
    return {**properties.values(), DEVICE: device, **labels}


def known_names(labels: Iterable[Mapping[str, str]]) -> frozenset[str]:
    """Return the names that a `where` may have in a fleet whose devices have these labels."""
    return frozenset({DEVICE, *PROPERTIES}.union(*labels))


def check_label(name: str, value: str) -> None:
    """Raise `ConfigError` if no device can have such a label."""
    if name == DEVICE or name in PROPERTIES:
        what = PROPERTIES.get(name, "the device's own name")
        raise ConfigError(f"'{name}' cannot be a label: it is known of every device ({what}); take another name")
    if name in WORDS or not NAME.fullmatch(name):
        raise ConfigError(
            f"'{name}' cannot be a label: a name begins with a letter and has letters, digits, '.', '_' and '-',"
            f" at most 63 of them, and is none of {', '.join(WORDS)}"
        )
    if not value or len(value) > LONGEST or not value.isprintable() or value != value.strip():
        raise ConfigError(
            f"label {name} = '{value}': a value is one line of 1 to {LONGEST} characters, without spaces around it"
        )
    if "'" in value and '"' in value:
        raise ConfigError(f"label {name}: a value with both kinds of quotes cannot be written in a `where`")


def check_labels(labels: Mapping[str, str]) -> None:
    """Raise `ConfigError` if no device can have these labels."""
    if len(labels) > MOST:
        raise ConfigError(f"{len(labels)} labels; a device has at most {MOST}")
    for name, value in labels.items():
        check_label(name, value)


def assigned(words: Iterable[str]) -> dict[str, str]:
    """Return the labels that words like `site=north` give; one without a value (`camera=`) takes the label away."""
    labels: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise ConfigError(f"'{word}': write a label as name=value, as in site=north, or name= to take it away")
        if name in labels:
            raise ConfigError(f"'{name}' is given twice: say one value")
        check_label(name, value or "-")
        labels[name] = value
    return labels
