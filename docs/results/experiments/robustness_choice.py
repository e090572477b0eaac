"""What `guards.trust = "majority"` should mean: `python robustness_choice.py` plays the candidates, writes the choice.

No test data are looked at: every run is judged by a fifth of each device's training data, and its seeds are used for
nothing else. The rules:

    enough    the worst attack of a fifth of the devices leaves an accuracy at least `ENOUGH` above the default's
    shut      the back door of a tenth of the devices opens hardly more often than with the default
    best      of those the one with the highest accuracy becomes the default; digits choose, UCI HAR must not object
"""

import logging
import sys
from collections.abc import Sequence
from itertools import product
from statistics import fmean

import robustness
import robustness_page
from attacks import ATTACKS
from robustness_page import Play, Results, mean, runs, table

SEEDS = tuple(range(100, 106))
SHARE, FEW = 0.2, 0.1
ENOUGH, WIDER = 0.005, 0.05
DOOR = "back door"  # costs hardly any accuracy, whatever the defence

VOTES = (
    "mean",
    "median",
    "geometric_median",
    *(f"trimmed_mean:share={share}" for share in (0.1, 0.2)),
    *(f"multi_krum:share={share}" for share in (0.1, 0.15, 0.2, 0.3)),
)
BOTH = tuple(f"multi_krum:share={share} trimmed_mean:share=0.1" for share in (0.1, 0.15, 0.2))
PAIRS = (*product(VOTES, (0.8, 0.9)), *product(BOTH, (0.8,)))
CANDIDATES = tuple(f"norm_clip {vote} momentum:beta={beta}" for vote, beta in PAIRS)
DEFAULT = "norm_clip trimmed_mean:share=0.1 momentum:beta=0.8"  # before this was played
HARMFUL = tuple(attack for attack in ATTACKS if attack != DOOR)


def plan(data: str, defences: Sequence[str]) -> list[Play]:
    """Every run of these defences by which accuracy is judged, and of none without attackers."""
    attacks = [("", 0.0), *((attack, SHARE) for attack in HARMFUL)]
    plays = [Play(data, seed, "none", judged="validation") for seed in SEEDS]
    return plays + [
        Play(data, seed, defence, attack, share, judged="validation")
        for seed in SEEDS
        for defence in defences
        for attack, share in attacks
    ]


def doors(data: str, defences: Sequence[str]) -> list[Play]:
    """Every run of these defences by which back doors are judged."""
    return [Play(data, seed, defence, DOOR, FEW, judged="validation") for seed in SEEDS for defence in defences]


def worst(results: Results, defence: str) -> float:
    """The accuracy that the worst attack leaves."""
    return min(mean(runs(results, defence, attack, SHARE)) for attack in HARMFUL)


def opened(results: Results, defence: str) -> float | None:
    """How often the back door of a few opens, where it was played."""
    played = runs(results, defence, DOOR, FEW)
    return fmean(result.back_door for result in played) if played else None


def good_enough(results: Results) -> list[str]:
    """The default, and the candidates that are good enough to take its place."""
    return [one for one in CANDIDATES if one == DEFAULT or worst(results, one) >= worst(results, DEFAULT) + ENOUGH]


def shut(results: Results, defence: str) -> bool:
    """Whether the back door of a few hardly opens more often than with the default."""
    here, there = opened(results, defence), opened(results, DEFAULT)
    return here is not None and there is not None and here <= there + WIDER


def rows(results: Results, defences: Sequence[str]) -> list[list[str]]:
    """A line for each defence, the best first."""
    nothing = mean(runs(results, "none"))
    lines = []
    for defence in sorted(defences, key=lambda one: -worst(results, one)):
        itself, left, door = mean(runs(results, defence)), worst(results, defence), opened(results, defence)
        under = [mean(runs(results, defence, attack, SHARE)) for attack in HARMFUL]
        numbers = itself, *under, itself - left, nothing - left
        open_in = "" if door is None else f"{100 * door:.0f}"
        lines.append([f"`{defence}`", *(f"{100 * number:.1f}" for number in numbers), open_in])
    return lines


def section(data: str, results: Results, defences: Sequence[str]) -> str:
    """The table of a data set."""
    nothing = 100 * mean(runs(results, "none"))
    lost = ["lost against itself", "lost against `none`"]
    columns = ["stages", "no attackers", *HARMFUL, *lost, "back door of a tenth opens"]
    return (
        f"### {data}, validation data\n\nMeans over the seeds {SEEDS[0]} to {SEEDS[-1]}, in per cent;"
        f" {100 * SHARE:.0f} % of attackers. `none` without attackers: {nothing:.1f}.\n\n"
        f"{table(columns, rows(results, defences))}"
    )


def main() -> None:
    """Play what is not known yet, and write the page."""
    logging.disable(logging.WARNING)
    known = robustness.Results(robustness.OUT)
    digits = known.take(plan("digits", CANDIDATES))
    digits |= known.take(doors("digits", good_enough(digits)))
    best = max((one for one in good_enough(digits) if shut(digits, one)), key=lambda one: worst(digits, one))
    ahead = 100 * (worst(digits, best) - worst(digits, DEFAULT))
    parts = [f"Chosen: `{best}`, on digits {ahead:.1f} points above the default of that time, `{DEFAULT}`.\n"]
    parts.append(section("digits", digits, CANDIDATES))
    if robustness.available("UCI HAR", "validation"):
        asked = [*dict.fromkeys([best, DEFAULT])]
        people = known.take([*plan("UCI HAR", asked), *doors("UCI HAR", asked)])
        parts.append(section("UCI HAR", people, asked))
    text = "\n".join(parts)
    robustness_page.write(robustness_page.CHOICE, text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
