"""Which Mosquitto is here, and where its plugins are."""

from pathlib import Path

import pytest

from edgefl.base.errors import ConfigError
from edgefl.wire.mosquitto_program import ACL_PLUGIN, Mosquitto, installed, mosquitto_version, version


def program(folder: Path, *, plugin: str = "") -> str:
    """A Mosquitto below a prefix of its own, with its plugin in this folder."""
    path = folder / "sbin" / "mosquitto"
    path.parent.mkdir(parents=True)
    path.touch()
    if plugin:
        (folder / plugin).mkdir(parents=True)
        (folder / plugin / ACL_PLUGIN).touch()
    return str(path)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("2.0.11", (2, 0)), ("2.1.2", (2, 1)), ("3.0.0-rc1", (3, 0)), ("10.12", (10, 12)), ("", (2, 0))],
)
def test_a_version_is_two_numbers(text: str, numbers: tuple[int, int]):
    assert version(text) == numbers


@pytest.mark.parametrize(
    "place", ["lib/x86_64-linux-gnu/mosquitto", "lib/mosquitto", "lib64", "lib", "lib/aarch64-linux-gnu"]
)
def test_the_plugin_is_found_where_packages_and_builds_put_it(tmp_path: Path, place: str):
    path = program(tmp_path, plugin=place)
    assert Mosquitto(path, (2, 1)).plugin(ACL_PLUGIN) == tmp_path / place / ACL_PLUGIN


def test_2_0_has_no_such_plugin_and_2_1_can_do_without(tmp_path: Path):
    with_it = program(tmp_path / "a", plugin="lib")
    assert Mosquitto(with_it, (2, 0)).plugin(ACL_PLUGIN) is None
    assert Mosquitto(program(tmp_path / "b"), (2, 1)).plugin(ACL_PLUGIN) is None


def test_3_0_without_its_plugin_is_a_clear_error(tmp_path: Path):
    with pytest.raises(
        ConfigError, match=r"mosquitto 3\.0 needs its plugin mosquitto_acl_file\.so, which is not below"
    ):
        Mosquitto(program(tmp_path), (3, 0)).plugin(ACL_PLUGIN)


def test_the_installed_program_says_its_version():
    here = installed()
    if here is None:
        pytest.skip("mosquitto is not installed")
    assert here.version == version(mosquitto_version())
    assert here.version >= (2, 0)
