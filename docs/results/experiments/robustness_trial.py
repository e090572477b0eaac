"""Other seeds, another defence: `python robustness_trial.py 3,4,5 norm_clip multi_krum:share=0.15 momentum:beta=0.8`.

Plays 20 % of attackers, every attack, against no defence, `majority` and these stages, and prints what the worst of
them costs; without stages the first two alone. Runs are kept beside those of `make robustness`; no page is written.
"""

import logging
import sys

import robustness
import robustness_page
from attacks import ATTACKS
from robustness_page import Play

from edgefl.config.reader import toml_value

SHARE = 0.2


def stage(word: str) -> dict[str, object]:
    """The table of a stage, from name:key=value..."""
    name, *keys = word.split(":")
    return {"name": name, **{key: toml_value(value) for key, _, value in (pair.partition("=") for pair in keys)}}


def main(seeds: str, *words: str) -> None:
    """Play them, and print a table for each data set."""
    logging.disable(logging.WARNING)
    if words:
        robustness.DEFENCES["these"] = {"aggregation": [stage(word) for word in words], "guards": robustness.OFF}
    defences = ["none", "majority", *(["these"] if words else [])]
    known = robustness.Results(robustness.OUT)
    for data in filter(robustness.available, robustness.DATA):
        plays = [
            Play(data, int(seed), defence, attack, SHARE if attack else 0.0)
            for seed in seeds.split(",")
            for defence in defences
            for attack in ("", *ATTACKS)
        ]
        results = {play: known.take(play) for play in plays}
        sys.stdout.write(f"\n### {data}, seeds {seeds}\n\n{robustness_page.losses(results)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
