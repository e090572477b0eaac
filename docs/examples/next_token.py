"""The next letter at every place of a text, which is made of short sentences. Letters are the tokens."""

import numpy as np
from torch import nn

WHO, DOES = ("the rain", "the river", "a cloud"), ("fills", "feeds", "follows")
WHAT = ("the lane", "the sea", "a field")
LETTERS = " abcdefghijklmnopqrstuvwxyz."
LENGTH = 24


def data():
    """Pieces of a text as numbers, and of each the letters that follow one by one; the last tenth is to test on."""
    rng = np.random.default_rng(0)
    text = "".join(f"{rng.choice(WHO)} {rng.choice(DOES)} {rng.choice(WHAT)}. " for _ in range(200))
    numbers = np.array([LETTERS.index(letter) for letter in text], np.int64)
    pieces = np.stack([numbers[i : i + LENGTH + 1] for i in range(0, len(numbers) - LENGTH, LENGTH)])
    x, y, last = pieces[:, :-1], pieces[:, 1:], len(pieces) // 10
    return x[:-last], y[:-last], x[-last:], y[-last:]


class Network(nn.Module):
    """A small recurrent network: (length,) letters in, (length, letters) out."""

    def __init__(self):
        super().__init__()
        self.meaning = nn.Embedding(len(LETTERS), 12)
        self.memory = nn.GRU(12, 32, batch_first=True)
        self.guess = nn.Linear(32, len(LETTERS))

    def forward(self, x):
        return self.guess(self.memory(self.meaning(x))[0])
