"""`edgefl.compare`: several algorithms on the same run and the same devices, with several seeds."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from typing_extensions import Unpack

from edgefl.lab.api.compared import Comparison
from edgefl.lab.api.data import DataLike
from edgefl.lab.api.description import Description, Setup, described
from edgefl.lab.api.entries import Algorithms, Grid, check_labels, check_seeds, has_grid, labelled, variant_of
from edgefl.lab.api.keywords import explained
from edgefl.lab.api.playing import surroundings
from edgefl.lab.api.sweeping import sweep
from edgefl.lab.comparison import comparison
from edgefl.lab.comparison.comparison import LEVELS
from edgefl.learn.models.user_networks import ModelLike
from edgefl.learn.session_objects import holding


@explained
def compare(
    model: ModelLike | None = None,
    data: DataLike | None = None,
    *,
    algorithms: Algorithms,
    grid: Grid | None = None,
    seeds: int = 1,
    levels: Sequence[float] = LEVELS,
    baseline: str | None = None,
    workers: int = 1,
    progress: bool | None = None,
    folder: str | Path | None = None,
    **run: Unpack[Setup],
) -> Comparison:
    """Play one run with several algorithms, each with a number of seeds.

    algorithms  a list, or {label: algorithm}, of what `edgefl.simulate` takes; words may add stages and keys of the run
                as on the command line ("ft=fedavg+finetune", "up=upcycled:run.rounds=40")
    grid        {key: values}, for every algorithm that has the key; a word may have one of its own too
                ("fedprox:mu=0.01|0.1"). Then each is compared with the setting that is best on a validation part of the
                training data, never by the test data: `Comparison.chosen`; `edgefl.sweep` has more to say about it
    levels      accuracies whose rounds are counted
    baseline    the label that the others are tested against; the first unless said
    workers     runs that are played at the same time, in processes of their own
    folder      keeps finished runs, and what unfinished ones need: after an interruption the same call goes on there
    run         the rest is as in `edgefl.simulate`: test, fleet, rounds, ...

    What all device halves share (lr, batch, epochs) is as `algorithm` has it where a word does not say otherwise.

    >>> import edgefl
    >>> both = ["fedavg", "fedprox:mu=0.1"]
    >>> comparison = edgefl.compare("softmax", "digits", algorithms=both, fleet=4, rounds=2, progress=False)
    >>> sorted(comparison.histories)
    ['fedavg', 'fedprox:mu=0.1']
    """
    check_seeds(seeds)
    if grid is not None or has_grid(algorithms):
        given: Any = {"levels": levels, "baseline": baseline, "workers": workers, "progress": progress, **run}
        given |= {"folder": folder}
        swept = sweep(model, data, algorithms=algorithms, grid=grid, seeds=seeds, **given).result
        return Comparison(swept.tested, swept.choices)
    with described(Description(model=model, data=data, **run)) as base, holding() as hold:
        chosen = [variant_of(label, one, base.file, hold) for label, one in labelled(algorithms)]
        check_labels([one.label for one in chosen])
        with surroundings(base, [one.run for one in chosen], workers, progress, folder) as around:
            return Comparison(comparison.compare(chosen, seeds=seeds, levels=levels, baseline=baseline, **around))
