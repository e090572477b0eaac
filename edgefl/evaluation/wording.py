"""How a model's scores are said: the same words in views, logs, simulations and comparisons."""

from collections.abc import Sequence
from typing import Protocol

from edgefl.events import Done, Evaluating, Round


class Scored(Protocol):
    """Whatever says how good a model is; what its task does not have is None."""

    @property
    def accuracy(self) -> float | None: ...
    @property
    def balanced_accuracy(self) -> float | None: ...
    @property
    def loss(self) -> float | None: ...
    @property
    def mae(self) -> float | None: ...
    @property
    def rmse(self) -> float | None: ...
    @property
    def r2(self) -> float | None: ...


def scores(event: Scored) -> str:
    """What a round's report, or the last word of a run, says about its model; empty if nobody looked."""
    if event.loss is None:
        return ""
    if event.accuracy is None:
        errors = f"  MAE {event.mae:.4g}  RMSE {event.rmse:.4g}  R2 {number(event.r2)}"
        return f"loss {event.loss:.4g}{errors}"
    return f"accuracy {event.accuracy:5.1%}  balanced {event.balanced_accuracy:5.1%}  loss {event.loss:6.3f}"


def best(event: Done) -> str:
    """The best that a run came to, from its last word; empty if nobody looked."""
    if event.best_accuracy is not None:
        return f"best accuracy {event.best_accuracy:.1%}"
    return "" if event.best_loss is None else f"best loss {event.best_loss:.4g}"


def weakest(event: Round | Done, names: Sequence[str] | None) -> str:
    """The class that a model knows least, by its name; empty where there are no classes to tell apart."""
    known = [(share, i) for i, share in enumerate(event.per_class or ()) if share is not None]
    if len(known) < 2:
        return ""
    share, i = min(known)
    return f"weakest class '{names[i]}' {share:.1%}" if names else f"weakest class {i} {share:.1%}"


def spent(event: Done) -> str:
    """What the last word of a private run says about privacy; empty if it promised none."""
    bill = event.privacy
    if bill is None:
        return ""
    updates = f"{bill['updates']:.0f} private updates of the device that spent most"
    if bill["epsilon"] is None:
        return f"privacy: none, after {updates}: with privacy.noise = 'seeded' the coordinator can take the noise off"
    return (
        f"privacy: epsilon {bill['epsilon']:.4g} at delta {bill['delta']:g}, after {updates}"
        f" (as published: {bill['as_published']:.4g}, which is no bound)"
    )


def bounded(event: Round) -> str:
    """Whose answers `[guards]` scaled down in a round, if anybody's."""
    names = list(event.bounded)
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"  bounded {', '.join(names[:5])}{more}" if names else ""


def number(value: float | None) -> str:
    """Three places, or a dash."""
    return "-" if value is None else f"{value:.3f}"


def evaluating(event: Evaluating) -> str:
    """What a run will be judged by, as it is said at its start."""
    if not event.samples:
        return "has no test data: neither accuracy nor loss will be known (task.data names them)"
    classes = event.class_names
    kinds = f" in {event.classes} classes" if event.classes else ", real targets"
    named = f" ({', '.join(classes[:10])}{', ...' if len(classes) > 10 else ''})" if classes else ""
    aside = event.set_aside
    rest = f"; {aside} more are set aside, its training part (x_test and y_test in an .npz divide it)" if aside else ""
    public = f"; {event.public} are public data" if event.public else ""
    top = event.unscaled
    scale = f"; features go up to {top:.6g}: scale them to about -1 to 1, or learning will probably fail" if top else ""
    return f"evaluates on {event.samples} samples of '{event.data}'{kinds}{named}{public}{rest}{scale}"


def size(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.2f} GB"
