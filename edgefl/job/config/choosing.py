"""What goes with `[selection]`: the mean of the answers must not count again what devices were drawn by."""

from collections.abc import Sequence

from edgefl.learn.contract import Algorithm, Outvoting, Stage
from edgefl.learn.selection.base import BySize, Selection


def counted_twice(selection: Selection, algorithm: Algorithm, stages: Sequence[Stage], *, everybody: bool) -> str:
    """Return what to say of a run that draws devices by their samples and averages by these too; empty otherwise.

    Where everybody is asked nothing is drawn, and a stage that gives each answer one vote has no weights.
    """
    drawn = isinstance(selection, BySize) and selection.by_samples
    voting = any(isinstance(stage, Outvoting) for stage in stages)
    weights = getattr(algorithm, "weights", "uniform")
    if not drawn or everybody or voting or weights == "uniform":
        return ""
    walked = ", wherever devices work through more of them," if weights == "batch" else ""
    return (
        f"selection.name = '{selection.name}' draws devices by their samples, and algorithm.weights ="
        f" '{weights}'{walked} counts these once more in the mean; set algorithm.weights = 'uniform', as in the paper"
    )
