"""Several labels at once: which of five tones are in a short signal; none excludes another."""

import numpy as np


def data():
    """200 signals of 40 moments, and for each five marks of 0 and 1."""
    rng = np.random.default_rng(0)
    y = (rng.random((200, 5)) < 0.4).astype(np.int64)
    moments = np.arange(40) / 40
    tones = np.stack([np.sin(2 * np.pi * (k + 1) * moments) for k in range(5)])
    x = y @ tones + rng.normal(0, 1.0, (200, 40))
    return x.astype(np.float32), y
