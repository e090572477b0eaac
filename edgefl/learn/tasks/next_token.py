"""A task: predict the next token at every place of a sequence, as language models do. Judged by perplexity.

Samples are token numbers (n, length). Labels are what comes next: (n, length), or (n,) the one token that follows the
whole sample. A place whose label is below 0 is not counted. The network gives (length, tokens).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp
from typing import TYPE_CHECKING

import numpy as np

from edgefl.base.errors import ConfigError
from edgefl.base.vector import Array
from edgefl.learn.losses import log_softmax
from edgefl.learn.tasks.fields import WHOLE, Field
from edgefl.learn.tasks.form import Form
from edgefl.learn.tasks.labels import classes_of, label_shape, share, whole

if TYPE_CHECKING:
    from edgefl.learn.data.dataset import Dataset  # it has a form: an import at run time would be circular

LARGEST = 700.0  # of a mean whose exponential is a number


@dataclass(frozen=True, slots=True)
class NextToken:
    """`perplexity`, and `token_accuracy`: the share of places where the most likely token is the one that comes.

    Sums, (3, 1): the number of places, minus the log of the probability of the right token, and hits.
    """

    loss: str = "token_cross_entropy"

    def form(
        self, parts: "Sequence[Dataset]", classes: int | None, outputs: Mapping[str, tuple[int, ...]] | None, where: str
    ) -> Form:
        data, shape = parts[0], label_shape(parts[0], "next_token", where)
        if data.form.inputs or data.x.dtype.kind not in "iu" or data.x.ndim != 2 or outputs:
            raise ConfigError(
                f"{where}: samples {data.x.dtype} of shape {list(data.shape)} are no sequences; give x of shape"
                " (n, length) with token numbers (int64), and no task.outputs"
            )
        length = data.shape[0]
        if shape not in {(), (length,)}:
            raise ConfigError(f"{where}: labels of shape {list(shape)}; give what follows each of {length} tokens")
        tokens = max(
            classes_of(parts, classes), 0 if classes else max(int(part.x.max(initial=0)) for part in parts) + 1
        )
        return Form("next_token", (), (Field("", (length,), whole=True),), (Field("", (length, tokens)),))

    def sound(self, form: Form) -> bool:
        one = len(form.labels) == len(form.outputs) == 1 and not form.inputs
        return one and len(form.outputs[0].shape) == 2 and form.outputs[0].shape[:1] == form.labels[0].shape

    def rows(self, data: "Dataset", form: Form, where: str) -> Array:
        shape, tokens = label_shape(data, "next_token", where), self.asked(form)
        y = np.concatenate([data.x[:, 1:], data.y[:, None]], axis=1) if not shape else data.y
        if int(data.x.max(initial=0)) >= tokens:
            raise ConfigError(
                f"{where}: its samples have token {int(data.x.max())}, the run has {tokens}; correct task.classes",
                told=f"its samples have tokens beyond the {tokens} of the run; correct task.classes",
            )
        return whole(y, where, "tokens of the run", least=-WHOLE, below=tokens)

    def asked(self, form: Form) -> int:
        return form.outputs[0].shape[1]

    def shape(self, form: Form) -> tuple[int, int]:  # noqa: ARG002 - of a kind
        return 3, 1

    def count(self, form: Form, z: Array, y: Array) -> Array:
        logp, true = log_softmax(z.reshape(-1, self.asked(form))), y.astype(np.int64).reshape(-1)
        known = np.flatnonzero(true >= 0)
        surprise = -logp[known, true[known]].astype(np.float64).sum()
        return np.array([[len(known)], [surprise], [(logp[known].argmax(axis=1) == true[known]).sum()]], np.float64)

    def scores(self, form: Form, sums: Array, samples: float) -> dict[str, float | None]:  # noqa: ARG002 - of a kind
        places, surprise, hits = sums[:, 0].tolist()
        mean = share(surprise, places)
        return {
            "perplexity": None if mean is None else exp(min(mean, LARGEST)),
            "token_accuracy": share(hits, places),
        }

    def held(self, sums: Array) -> Array:
        return np.asarray(sums[0])

    def possible(self, form: Form, sums: Array, samples: int) -> bool:
        places, surprise, hits = sums[:, 0].tolist()
        return bool(0 <= hits <= places <= samples * form.labels[0].size and surprise >= 0)
