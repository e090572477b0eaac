"""Labels are the operator's word, properties the device's own: no label can stand for a property."""

import pytest

from edgefl.base import device_labels
from edgefl.base.device_labels import (
    PROPERTIES,
    Properties,
    assigned,
    check_label,
    check_labels,
    known_names,
    values_of,
)
from edgefl.base.errors import ConfigError
from edgefl.base.where import parse


def test_words_give_labels_and_take_them_away():
    assert assigned(["site=north", "camera=", "url=a=b"]) == {"site": "north", "camera": "", "url": "a=b"}


@pytest.mark.parametrize(
    ("word", "complaint"),
    [
        ("site", "write a label as name=value"),
        ("=north", "a name begins with a letter"),
        ("9=north", "a name begins with a letter"),
        ("größe=1", "a name begins with a letter"),
        ("and=1", "is none of and, or"),
        ("true=1", "is none of and, or"),
        ("memory_mb=1", "known of every device"),
        ("memory_mb=", "known of every device"),
        ("device=pi-01", "the device's own name"),
        ("site= north", "one line of 1 to 100 characters"),
        ("site=a\nb", "one line of 1 to 100 characters"),
        ("site=" + "a" * 101, "one line of 1 to 100 characters"),
        ("site='\"", "both kinds of quotes"),
        ("a" * 64 + "=1", "at most 63"),
    ],
)
def test_what_cannot_be_a_label_is_refused(word, complaint):
    with pytest.raises(ConfigError, match=complaint):
        assigned([word])


def test_a_label_that_is_given_twice_is_refused():
    with pytest.raises(ConfigError, match="'site' is given twice"):
        assigned(["site=north", "site=south"])


@pytest.mark.parametrize("name", sorted(PROPERTIES))
def test_no_label_has_the_name_of_a_property(name):
    with pytest.raises(ConfigError, match="known of every device"):
        check_label(name, "x")


def test_a_value_may_be_as_long_as_a_line_of_a_hundred():
    check_label("a" * 63, "b" * 100)
    with pytest.raises(ConfigError, match="one line of 1 to 100"):
        check_label("a", "")


def test_a_device_has_at_most_fifty_labels():
    check_labels({f"a{number}": "1" for number in range(device_labels.MOST)})
    with pytest.raises(ConfigError, match="at most 50"):
        check_labels({f"a{number}": "1" for number in range(device_labels.MOST + 1)})


def test_what_a_device_does_not_say_it_does_not_have():
    assert Properties().values() == {}
    about = Properties("aarch64", 905, "0.1.0", "onnx", 0)
    assert about.values() == {"arch": "aarch64", "memory_mb": 905, "version": "0.1.0", "backend": "onnx", "samples": 0}


def test_a_device_is_known_by_its_name_its_properties_and_its_labels():
    values = values_of("pi-03", {"site": "north"}, Properties(arch="aarch64"))
    assert values == {"device": "pi-03", "arch": "aarch64", "site": "north"}
    assert parse("device in ['pi-03'] and site == 'north' and arch == 'aarch64'").matches(values)


def test_a_fleet_knows_the_labels_of_all_its_devices_and_every_property():
    assert known_names([{"site": "north"}, {}, {"camera": "v2"}]) == {"device", "site", "camera", *PROPERTIES}
    assert known_names([]) == {"device", *PROPERTIES}
