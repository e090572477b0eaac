"""Tweets as rows of token numbers, for models that begin with an embedding.

A token's number is a hash of its text, so no vocabulary is built, stored or shipped to devices.
"""

import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import numpy as np

from edgefl.base.vector import Array
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.data.limit import DataLimit
from edgefl.learn.data.lines import short_lines
from edgefl.learn.data.source import Source, held_out, reading

VOCABULARY = 4096  # token numbers are below this; 0 pads
ROW = 256  # bytes of a row of three cells, without its texts
LENGTH = 32  # tokens per tweet: the rest is cut off
_TOKEN = re.compile(r"https?://\S+|[@#]?\w+(?:'\w+)?|[^\w\s]")


def sent140(folder: Path, limit: DataLimit) -> Source:
    """Tweets (32,) of token numbers, int64, negative or positive; groups are the authors; every fifth is a test."""
    path = folder / "leaf_users.tsv.gz"
    with reading(path):
        with gzip.open(path, "rt", encoding="utf8", newline="\n") as file:
            rows = [line.rstrip("\n").split("\t", 2) for line in _counted(file, limit)][1:]
        user = np.array([int(row[0]) for row in rows], np.int64)
        y = np.array([int(row[1]) for row in rows], np.int64)
    whole = Dataset(np.stack([tokens(row[2]) for row in rows]), y, 2)
    train, test = held_out(len(whole))
    return Source(whole.take(train), whole.take(test), user[train], "sent140")


def _counted(file: TextIO, limit: DataLimit) -> Iterator[str]:
    for line in short_lines(file):
        limit.take(4 * len(line) + 8 * LENGTH + ROW)
        yield line


def tokens(text: str) -> Array:
    """The numbers of the first 32 tokens; people's names and addresses count as one token each."""
    numbers = np.zeros(LENGTH, np.int64)
    for i, word in enumerate(_TOKEN.findall(text.lower())[:LENGTH]):
        plain = "http" if word.startswith("http") else "@" if word.startswith("@") else word
        numbers[i] = 1 + zlib.crc32(plain.encode()) % (VOCABULARY - 1)
    return numbers
