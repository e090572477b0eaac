"""The figures by which models are judged, each defined here once: its name, which way is better, how it is shown."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


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


def figures(scores: Mapping[str, float | None] | None) -> tuple[Figure, ...]:
    """The scores of a kind of task, what it is chiefly judged by first."""
    return tuple(Figure(name, metric_of(name), value) for name, value in (scores or {}).items())


def judged_by(accuracy: float | None, scores: Mapping[str, float | None] | None) -> str:
    """What runs are compared by: accuracy, the loss where targets are real numbers, or the chief figure of a kind."""
    return next(iter(scores or ()), "loss" if accuracy is None else "accuracy")


def better(name: str, value: float, best: float) -> bool:
    """Whether this value of a figure is better than the best so far."""
    return value > best if metric_of(name).higher else value < best


def chief(told: Mapping[str, Any]) -> Figure | None:
    """What a model is chiefly judged by among these figures: accuracy, RMSE, or the first of its kind of task."""
    of_kind = figures(told.get("scores"))
    plain = next((name for name in ("accuracy", "rmse") if told.get(name) is not None), None)
    return of_kind[0] if of_kind else None if plain is None else Figure(plain, METRICS[plain], told[plain])
