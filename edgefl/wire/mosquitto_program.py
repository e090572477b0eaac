"""The Mosquitto that is installed here: its version, and the plugins that read access and password files for it.

Mosquitto 2.0 reads these files by itself (`acl_file` with `per_listener_settings`, `password_file`). 2.1 still does,
with a warning; its documentation says that 3.0 will not. From 2.1 on, plugins that come with it read the same files.
"""

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from edgefl.base.errors import ConfigError

Version = tuple[int, int]

ACL_PLUGIN, PASSWORD_PLUGIN = "mosquitto_acl_file.so", "mosquitto_password_file.so"
PLUGINS: Version = (2, 1)  # the first version that has them
ONLY_PLUGINS: Version = (3, 0)  # the first version that needs them
FOLDERS = ("lib/*/mosquitto", "lib*/mosquitto", "lib/*", "lib*")  # below its prefix, where plugins may be


@dataclass(frozen=True, slots=True)
class Mosquitto:
    """A program and its version."""

    path: str
    version: Version

    def plugin(self, name: str) -> Path | None:
        """Return the plugin of this name, or None where this version reads such files without one."""
        if self.version < PLUGINS:
            return None
        prefix = Path(self.path).absolute().parents[1]
        paths = (path for folder in FOLDERS for path in sorted(prefix.glob(f"{folder}/{name}")))
        plugin = next((path for path in paths if " " not in str(path)), None)  # its configuration cannot write a space
        if plugin is None and self.version >= ONLY_PLUGINS:
            raise ConfigError(
                f"mosquitto {self.version[0]}.{self.version[1]} needs its plugin {name}, which is not below {prefix}:"
                " install the package of Mosquitto that has it"
            )
        return plugin


def find_mosquitto() -> str | None:
    """Return the path of the mosquitto program, also where Debian hides it from ordinary users."""
    return shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/opt/homebrew/sbin")


def mosquitto_version() -> str:
    """Return the version of the installed program as it says it, or that there is none."""
    program = find_mosquitto()
    return "not installed" if program is None else _said_by(program) or "unknown"


def installed() -> Mosquitto | None:
    """Return the installed program; None where there is none."""
    program = find_mosquitto()
    return None if program is None else Mosquitto(program, version(_said_by(program)))


def version(text: str) -> Version:
    """Return the first two numbers of a version; 2.0, whose configuration most versions take, if there are none."""
    numbers = re.match(r"(\d+)\.(\d+)", text)
    return (int(numbers[1]), int(numbers[2])) if numbers else (2, 0)


def _said_by(program: str) -> str:
    """Return what stands behind `mosquitto version` in the program's help."""
    help_text = subprocess.run([program, "-h"], capture_output=True, text=True, check=False).stdout  # noqa: S603
    return help_text.split("\n", 1)[0].removeprefix("mosquitto version ").strip()
