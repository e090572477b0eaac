"""How large a device's installation is: the base package with all its dependencies, in a fresh virtual environment.

    python scripts/installed_size.py [--limit 200] [pip options, e.g. onnxruntime==1.23.2]

Prints every package and the sum, in megabytes of 10^6 bytes as files have them; exit 1 if the sum is above the limit.
"""
# ruff: noqa: S603, T201 - a script: it prints, and starts the Python it has just installed

import argparse
import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
TOOLS = {"pip", "setuptools", "wheel"}  # what a virtual environment comes with
WEIGH = """
import json
from importlib.metadata import distributions
def weight(one):
    places = (file.locate() for file in one.files or ())
    return sum(place.stat().st_size for place in places if place.is_file())
print(json.dumps({f"{one.name} {one.version}": weight(one) for one in distributions()}))
"""


def installed(more: list[str]) -> dict[str, int]:
    """Bytes of every package, by name and version."""
    with TemporaryDirectory(prefix="edgefl-size-") as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = str(Path(folder) / "bin" / "python")
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, "-c", str(ROOT / "constraints.txt"), str(ROOT)], check=True)
        if more:
            subprocess.run([*install, *more], check=True)
        weighed = subprocess.run([python, "-I", "-c", WEIGH], check=True, capture_output=True, text=True)
    sizes: dict[str, int] = json.loads(weighed.stdout)
    return {name: size for name, size in sizes.items() if name.split()[0].lower() not in TOOLS}


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description="The installed size of the base package, in a fresh environment.")
    parser.add_argument("--limit", type=float, default=200.0, help="megabytes (200)")
    arguments, more = parser.parse_known_args()
    sizes = installed(more)
    total = sum(sizes.values()) / 1e6
    for name, size in sorted(sizes.items(), key=lambda item: -item[1]):
        print(f"{size / 1e6:8.1f} MB  {name}")
    print(f"{total:8.1f} MB  together, limit {arguments.limit:.0f} MB")
    return int(total > arguments.limit)


if __name__ == "__main__":
    sys.exit(main())
