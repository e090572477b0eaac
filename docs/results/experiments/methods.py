"""Personalised methods, selections and server optimisers: `python methods.py` plays all and prints methods.md's tables.

Rates are chosen on validation data, from the same four for all (Adam's steps are of another kind, and so are its four);
only what was chosen meets the data that it is judged by. Finished runs are kept in runs/methods: started again, the
script goes on where it was stopped.
"""

import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from statistics import fmean

from edgefl.base.events import Evaluated, Fact, Round
from edgefl.job.config.reader import read_toml
from edgefl.job.config.schema import RunFile
from edgefl.lab.comparison.comparison import ComparisonResult, kept_in, play_prepared
from edgefl.lab.comparison.grid import Family, families
from edgefl.lab.comparison.outcomes import PlayedRun
from edgefl.lab.comparison.progress import watching
from edgefl.lab.comparison.sweep import Choice, Trial, sweep, to_test

HERE, OUT = Path(__file__).parent, Path("runs", "methods")
SEEDS = (1, 2, 3)
LAST = 5  # rounds that are averaged, as where a rate is chosen
LEVEL = 0.8
RATES = "lr=0.03,0.1,0.3,1"
SERVER = "rate=0.003|0.01|0.03|0.1"

PERSONAL = (
    "fedavg",
    "fedper",
    "fedrep",
    "ditto",
    "pfedme",
    "fedavg-bn=fedavg:task.model=mlp_bn",
    "fedbn=fedbn:task.model=mlp_bn",
)
CHOSEN = (
    "fedavg",
    "samples=fedavg:weights=uniform:selection.name=samples",
    "power_of_choice=fedavg:weights=uniform:selection.name=power_of_choice",
    "oort=fedavg:selection.name=oort",
    "scaled=fedavg+scale:factor=0.5|1|2|4",
    f"fedadam:{SERVER}",
    f"fedyogi:{SERVER}",
    f"fedadagrad:{SERVER}",
    "adam=fedavg:optimiser=adam:lr=0.001|0.003|0.01|0.03",
)


@dataclass(frozen=True, slots=True)
class Personal:
    """A run that devices judge too, each figure the mean of its last rounds."""

    own: float  # on what devices set aside, with the model that each would use
    worst_tenth: float  # of the devices
    trained: float  # the same, after one more round of local training
    shared: float  # what they share, on the test data


def entries(file: str, words: Sequence[str], *sets: str) -> tuple[Family, ...]:
    """What is played, with every rate."""
    path = HERE / file
    return families(",".join(words), [RATES], read_toml(path), str(path), sets)


def personal(run: RunFile) -> Personal:
    """Play a run that devices and the coordinator judge."""
    told: list[Evaluated] = []
    shared: list[float] = []

    def hear(fact: Fact) -> None:
        if isinstance(fact, Evaluated):
            told.append(fact)
        elif isinstance(fact, Round) and fact.accuracy is not None:
            shared.append(fact.accuracy)

    both = run.evaluation.model_copy(update={"on": "both"})
    play_prepared(run.model_copy(update={"evaluation": both}), None, hear)
    return Personal(
        own=last(one.accuracy for one in told),
        worst_tenth=last(one.worst_tenth for one in told),
        trained=last(one.local_scores.get("accuracy") for one in told),
        shared=mean(shared),
    )


def last(figures: Iterable[float | None]) -> float:
    """The mean of one figure over the last rounds that have it; of the last model nobody trained another."""
    return mean([value for value in figures if value is not None])


def mean(values: Sequence[float]) -> float:
    return fmean(values[-LAST:])


def played(tested: ComparisonResult, label: str) -> list[PlayedRun]:
    return [run for run in tested.played if run.label == label]


def cells(values: Sequence[float]) -> str:
    """The mean, then every seed."""
    return f"{short(fmean(values))} ({', '.join(map(short, values))})"


def short(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")


def settings(choices: Sequence[Choice]) -> str:
    """What was chosen: one setting, or one for each seed where they differ."""
    texts = [" ".join(choice.chosen.setting.values.values()) for choice in choices]
    return texts[0] if len(set(texts)) == 1 else ", ".join(texts)


def own_models(say: Callable[[str], object]) -> None:
    """Models of one's own. Devices of another seed set other samples aside, so each seed chooses for itself."""
    choices: dict[str, list[Choice]] = {}
    runs: dict[str, list[Personal]] = {}
    for seed in SEEDS:
        asked = entries("personal.toml", PERSONAL, f"run.seed={seed}", "evaluation.on=devices")
        swept = sweep(asked, memory=kept_in(OUT / "personal"), watching=watching)
        for choice in swept.choices:
            choices.setdefault(choice.label, []).append(choice)
            runs.setdefault(choice.label, []).append(personal(to_test(choice.chosen)))
    say("| | `lr` | devices' own data | worst tenth of devices | after training | the shared model |\n")
    say("|---|---|---:|---:|---:|---:|\n")
    for label, results in runs.items():
        figures = [[getattr(one, name) for one in results] for name in Personal.__slots__]
        say(f"| {label} | {settings(choices[label])} | {' | '.join(map(cells, figures))} |\n")
    trials(say, {f"{label}, seed {seed}": each[i] for label, each in choices.items() for i, seed in enumerate(SEEDS)})


def one_model(say: Callable[[str], object]) -> None:
    """Whom to ask, and the coordinator's step. All seeds choose together: the test data are the same for all."""
    asked = entries("chosen.toml", CHOSEN, f"run.seed={SEEDS[0]}")
    swept = sweep(asked, seeds=len(SEEDS), tuning_seeds=len(SEEDS), memory=kept_in(OUT / "chosen"), watching=watching)
    say("\n| | setting | last round | mean of the last five | rounds to 80 % |\n|---|---|---:|---:|---|\n")
    for choice in swept.choices:
        judged = [run.judged for run in played(swept.tested, choice.label)]
        ends, means = [values[-1] for values in judged], [mean(values) for values in judged]
        firsts = [next((str(n) for n, value in enumerate(values, 1) if value >= LEVEL), "never") for values in judged]
        row = settings([choice]), cells(ends), cells(means), ", ".join(firsts)
        say(f"| {choice.label} | {' | '.join(row)} |\n")
    trials(say, {choice.label: choice for choice in swept.choices})


def trials(say: Callable[[str], object], choices: Mapping[str, Choice]) -> None:
    """What the validation data said of every setting."""
    say("\nvalidation:\n\n")
    for label, choice in choices.items():
        scores = (f"{' '.join(trial.setting.values.values())}: {score(trial)}" for trial in choice.trials)
        say(f"- {label}: {'; '.join(scores)}\n")


def score(trial: Trial) -> str:
    return short(trial.mean) if isfinite(trial.mean) else "failed"


def main() -> None:
    """Both tables."""
    logging.disable(logging.WARNING)
    own_models(sys.stdout.write)
    one_model(sys.stdout.write)


if __name__ == "__main__":
    main()
