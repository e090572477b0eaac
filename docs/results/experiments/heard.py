"""Who is heard, and how old answers are: `python heard.py [SEED]` plays asynchronous.toml in its three ways.

Of each way it prints the share of the merged answers that came from each kind of board, beside that of the fleet, and
where rounds wait for nobody how many merges old answers were: in the mean, and in the round with the oldest.
"""

import logging
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

from edgefl.base.events import Answered, Fact, Round
from edgefl.job.config.reader import read_toml
from edgefl.job.config.schema import RunFile
from edgefl.job.run.job import device_names
from edgefl.lab.comparison.comparison import play_prepared
from edgefl.lab.comparison.variants import variants
from edgefl.system.hardware.profiles import assign

FILE = Path(__file__).with_name("asynchronous.toml")
WAYS = (
    "waits=fedavg:rounds.cohort=12",
    "reserve=fedavg:rounds.cohort=12:rounds.over_select=1.5",
    "buffered=fedavg:rounds.mode=buffered:rounds.concurrency=12:rounds.buffer=4:run.rounds=150",
)


def told(run: RunFile, fleet: Mapping[str, int]) -> tuple[Counter[str], list[float], int]:
    """How many answers of each kind of board were merged, how old those of each round were, how many were refused."""
    boards = assign(fleet, device_names(sum(fleet.values())), run.run.seed)
    heard, ages, refused = Counter[str](), list[float](), 0

    def hear(fact: Fact) -> None:
        nonlocal refused
        if isinstance(fact, Answered):
            heard[boards[fact.device]] += fact.verdict == "accepted"
            refused += fact.verdict != "accepted"
        elif isinstance(fact, Round) and fact.staleness is not None:
            ages.append(fact.staleness)

    play_prepared(run, None, hear)
    return heard, ages, refused


def main(seed: str = "0") -> None:
    """A line for each way."""
    logging.disable(logging.WARNING)
    table = read_toml(FILE)
    fleet = table["fleet"]["profiles"]
    for variant in variants(",".join(WAYS), table, str(FILE), [f"run.seed={seed}"]):
        heard, ages, refused = told(variant.run, fleet)
        all_heard = heard.total()
        shares = [f"{b} {heard[b] / all_heard:.2f} ({n / sum(fleet.values()):.2f})" for b, n in fleet.items()]
        old = f"; {fmean(ages):.2f} merges old, at most {max(ages):.2f} in a round" if ages else ""
        line = f"{variant.label}, {variant.run.run.rounds} rounds: {', '.join(shares)}{old}; {refused} not accepted\n"
        sys.stdout.write(line)
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
