"""uPlot stands in our files as its authors published it."""

from hashlib import sha256
from pathlib import Path

import edgefl.watch.page

FOLDER = Path(edgefl.watch.page.__file__).parent / "static" / "vendor" / "uplot"
PUBLISHED = {  # of uplot 1.6.32 in the npm registry
    "uPlot.esm.js": "5dd9b3281aa64b461b42d9945f6adb2649d346502b12281a9ae0d46599a80eba",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}


def test_every_file_is_the_published_one_and_its_licence_is_beside_it() -> None:
    assert {path.name: sha256(path.read_bytes()).hexdigest() for path in FOLDER.iterdir()} == PUBLISHED
