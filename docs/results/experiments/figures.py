"""The pictures of these pages: `python figures.py` takes those of comparisons from runs/, with fewer colours.

A comparison that was not played leaves its picture as it is.
"""

import sys
from pathlib import Path

from PIL import Image

COLOURS = 128
FIGURES = Path(__file__).parents[1] / "figures"
PICTURES = {
    "fedgc": ("accuracy", "forgetting"),
    "flashback": ("accuracy", "forgetting", "classes"),
    "fedreg": ("accuracy", "forgetting"),
    "gradma": ("accuracy", "forgetting"),
    "upcycled-11-0.9": ("accuracy",),
    "private-objective-iid": ("accuracy",),
    "upcycled-iid": ("accuracy",),
    "upcycled-00": ("accuracy",),
    "plain-00": ("accuracy",),
    "mixture": ("accuracy",),
    "asynchronous": ("time",),
}
NAMES = {"upcycled-11-0.9": "upcycled-11", "plain-00": "upcycled-plain-00"}  # where the page calls it otherwise


def main(runs: Path) -> None:
    """Copy what is there."""
    for folder, names in PICTURES.items():
        for name in names:
            source, target = runs / folder / f"{name}.png", FIGURES / f"{NAMES.get(folder, folder)}-{name}.png"
            if source.exists():
                with Image.open(source) as picture:
                    picture.convert("RGB").quantize(COLOURS).save(target, optimize=True)
                sys.stdout.write(f"{source} -> {target.name}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs"))
