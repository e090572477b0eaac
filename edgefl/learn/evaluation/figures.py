"""The figures by which models are judged, each defined here once: its name, which way is better, how it is shown."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from edgefl.base.scores import Scores


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure by which a model is judged: its name for people, which way is better, whether it is a share of one."""

    title: str
    higher: bool
    share: bool = False


METRICS: Mapping[str, Metric] = {
    "accuracy": Metric("accuracy", higher=True, share=True),
    "balanced_accuracy": Metric("balanced", higher=True, share=True),
    "loss": Metric("loss", higher=False),
    "mae": Metric("MAE", higher=False),
    "rmse": Metric("RMSE", higher=False),
    "r2": Metric("R2", higher=True),
    "mean_iou": Metric("mean IoU", higher=True, share=True),
    "pixel_accuracy": Metric("pixel accuracy", higher=True, share=True),
    "f1": Metric("F1", higher=True, share=True),
    "exact_match": Metric("exact match", higher=True, share=True),
    "perplexity": Metric("perplexity", higher=False),
    "token_accuracy": Metric("token accuracy", higher=True, share=True),
    "reconstruction_error": Metric("reconstruction error", higher=False),
    "auroc": Metric("AUROC", higher=True, share=True),
}


def metric_of(name: str) -> Metric:
    """What a figure of this name is; `output.rmse` is the RMSE of one output."""
    return METRICS[name.rpartition(".")[2]]


def title_of(name: str) -> str:
    """Its name for people; of one of several outputs, with the name of the output."""
    head, _, last = name.rpartition(".")
    return f"{head} {METRICS[last].title}" if head else METRICS[last].title


class Figure(NamedTuple):
    """One number of a model, and what it is."""

    name: str
    metric: Metric
    value: float | None

    @property
    def title(self) -> str:
        """Its name for people."""
        return title_of(self.name)

    @property
    def shown(self) -> str:
        """Its value for people."""
        if self.value is None:
            return "-"
        return f"{self.value:.1%}" if self.metric.share else f"{self.value:.4g}"

    @property
    def exact(self) -> str:
        """Its value where a small difference matters."""
        return f"{self.value:.4f}" if self.value is not None and self.metric.share else self.shown


def figures(scores: Scores) -> tuple[Figure, ...]:
    """The scores of a model, what it is judged by first."""
    return tuple(Figure(name, metric_of(name), value) for name, value in scores.items())


def judged_by(scores: Scores) -> str:
    """What runs are compared by: accuracy, the loss where targets are real numbers, or the chief figure of a task."""
    return next(iter(scores), "loss")


def better(name: str, value: float, best: float) -> bool:
    """Whether this value of a figure is better than the best so far."""
    return value > best if metric_of(name).higher else value < best


def chief(scores: Scores) -> Figure | None:
    """What tells people most of a model: accuracy, RMSE, or the first figure of its task; never the loss."""
    return next((figure for figure in figures(scores) if figure.name != "loss"), None)


def growing(scores: Scores) -> Figure | None:
    """The first figure that grows to 1 with a better model, if it is known: accuracy, R2, mean IoU."""
    return next((one for one in figures(scores) if one.metric.higher and one.value is not None), None)
