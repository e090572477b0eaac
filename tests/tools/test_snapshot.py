"""A snapshot of what a restructuring must not change sees each kind of change."""

import copy

import pytest

from tools import snapshot


@pytest.fixture(scope="module")
def before() -> dict[str, object]:
    return {"commands": snapshot.surface_of_commands(), "facts": snapshot.facts(), "models": {"fedavg: loop": "9d0d"}}


def test_nothing_is_different_from_itself(before: dict[str, object]) -> None:
    assert snapshot.differences(before, copy.deepcopy(before)) == []


@pytest.mark.parametrize("group", ["commands", "facts", "models"])
def test_what_is_gone_new_or_different_is_named(group: str, before: dict[str, object]) -> None:
    now = copy.deepcopy(before)
    entries = now[group]
    assert isinstance(entries, dict)
    gone = next(iter(entries))
    del entries[gone]
    entries["invented"] = "as well"
    assert snapshot.differences(before, now) == [
        f" / {group} / {gone}: {before[group][gone]} -> None",  # type: ignore[index]
        f" / {group} / invented: None -> as well",
    ]


def test_words_about_a_key_may_change() -> None:
    assert snapshot.differences({"description": "old", "default": 1}, {"description": "new", "default": 1}) == []


def test_options_and_their_defaults_are_in_it(before: dict[str, object]) -> None:
    commands = before["commands"]
    assert isinstance(commands, dict)
    assert any(line.startswith("--rounds") for line in commands["coordinator extend"])
