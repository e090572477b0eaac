"""Other seeds, another defence: `python robustness_trial.py 3,4,5 norm_clip multi_krum:share=0.15 momentum:beta=0.8`.

Plays 20 % of attackers, every attack, against no defence, `majority` and these stages, and prints what the worst of
them costs; without stages the first two alone. Runs are kept beside those of the Makefile; no page is written.
"""

import logging
import sys

import robustness
import robustness_page
from attacks import ATTACKS
from robustness_page import Play

SHARE = 0.2


def main(seeds: str, *words: str) -> None:
    """Play them, and print a table for each data set."""
    logging.disable(logging.WARNING)
    defences = ["none", "majority", *([" ".join(words)] if words else [])]
    known = robustness.Results(robustness.OUT)
    for data in filter(robustness.available, robustness.DATA):
        results = known.take(
            Play(data, int(seed), defence, attack, SHARE if attack else 0.0)
            for seed in seeds.split(",")
            for defence in defences
            for attack in ("", *ATTACKS)
        )
        sys.stdout.write(f"\n### {data}, seeds {seeds}\n\n{robustness_page.losses(results)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
