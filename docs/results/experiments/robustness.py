"""What attackers can do, and what each defence does about it: `python robustness.py` plays all and writes the page.

Every run is kept in runs/robustness as soon as it is done, under everything that it depends on: started again, the
script goes on where it was stopped, and plays again only what has changed. A data set that is not there is left out.
"""

import json
import logging
import sys
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from typing import Any

import attacks
import numpy as np
import robustness_page
from attacks import ATTACKS, TARGET, Attacked, stamped
from robustness_page import Play, Result
from small_mlp import SmallMlp

from edgefl import robust, seeds
from edgefl.config.reader import parse
from edgefl.config.schema import RunFile
from edgefl.data.dataset import Dataset
from edgefl.errors import ConfigError, Diverged
from edgefl.events import Fact, Round
from edgefl.run import job as jobs
from edgefl.run.job import Job, RunState
from edgefl.simulation.loop import simulate

OUT = Path("runs", "robustness")
SEEDS = (0, 1, 2)
SHARES = (0.1, 0.2, 0.3)
LAST = 3  # rounds whose mean accuracy is a run's result
OFF = {"weight_cap": "off", "norm_cap": "off", "extra_cap": "off"}

DATA: dict[str, dict[str, Any]] = {
    "digits": {
        "run": {"name": "robustness", "rounds": 40},
        "task": {
            "data": "digits",
            "model": "softmax",
            "partition": {"kind": "dirichlet", "omega": 0.5, "devices": 20},
        },
        "algorithm": {"name": "fedavg", "lr": 0.5, "batch": 16, "epochs": 1},
    },
    "UCI HAR": {
        "run": {"name": "robustness", "rounds": 25},
        "task": {
            "data": "sources:uci_har_statistics",
            "model": "softmax",
            "partition": {"kind": "natural", "devices": 21},
        },
        "algorithm": {"name": "fedavg", "lr": 0.1, "batch": 32, "batches": 10},
    },
}


def stages(*names: str, **guards: Any) -> dict[str, Any]:
    """The tables of a run file that make a defence of these stages."""
    return {"aggregation": [{"name": name} for name in names], "guards": guards or OFF}


DEFENCES: dict[str, dict[str, Any]] = {
    "none": {"guards": OFF},
    "caps": {},
    "norm_clip": stages("norm_clip", "mean"),
    "median": stages("median"),
    "trimmed_mean": stages("trimmed_mean"),
    "geometric_median": stages("geometric_median"),
    "krum": stages("krum"),
    "multi_krum": stages("multi_krum"),
    "majority": {"guards": {"trust": "majority"}},
}


def plan(data: str, seed: int) -> Iterator[Play]:
    """Every run on a data set with a seed."""
    for defence in DEFENCES:
        yield Play(data, seed, defence)
        for attack in ATTACKS:
            for share in SHARES:
                yield Play(data, seed, defence, attack, share)


def settings(play: Play) -> dict[str, Any]:
    """The run file of a play, as tables."""
    table = {**DATA[play.data], **DEFENCES[play.defence]}
    return {**table, "run": {**table["run"], "seed": play.seed}}


def run_file(play: Play) -> RunFile:
    """The run file of a play."""
    return parse(RunFile, settings(play), "robustness", environment={})


@cache
def prepared(data: str, seed: int) -> tuple[Job, dict[str, Dataset]]:
    """The job without a defence and everybody's data: made once, because it takes longer than a run."""
    job, held = jobs.prepare(run_file(Play(data, seed, "none")))
    network = SmallMlp(job.sample, job.classes)
    job = replace(job, model=network, device_model=network, start=network.start(seed))
    return job, dict(zip(jobs.device_names(len(held.devices)), held.devices, strict=True))


def attackers(play: Play, devices: Mapping[str, Dataset]) -> list[str]:
    """Who attacks: the same devices in all runs of a seed, and more of them for a larger share."""
    order = seeds.stream(play.seed, "attackers").permutation(sorted(devices))
    return [str(name) for name in order[: round(play.share * len(devices))]]


def played(play: Play) -> Result:
    """The result of a run."""
    plain, devices = prepared(play.data, play.seed)
    run = run_file(play)
    job = replace(plain, run=run, stages=run.make_stages())
    engine = Attacked(job, devices, attackers(play, devices), ATTACKS[play.attack]) if play.attack else None
    accuracies: list[float] = []
    models: list[RunState] = []

    def hear(fact: Fact) -> None:
        if isinstance(fact, Round) and fact.accuracy is not None:
            accuracies.append(fact.accuracy)

    try:
        models.append(simulate(job, devices, hear, engine=engine))
    except Diverged:  # the attackers' model is no model any more: what counts is chance
        return Result(1 / job.classes, 0.0, diverged=True)
    return Result(fmean(accuracies[-LAST:]), back_door(job, models[0]))


def back_door(job: Job, run_state: RunState) -> float:
    """Which share of the test samples of other classes is taken for the target when it bears the trigger."""
    assert job.test is not None  # noqa: S101 - both data sets have one
    others = np.flatnonzero(job.test.y != TARGET)
    logits = job.model.logits(run_state.params, stamped(job.test.x[others]))
    return float((logits.argmax(axis=1) == TARGET).mean())


class Results:
    """What was played, on disk line by line."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path, self._code = folder / "results.jsonl", code()
        lines = self._path.read_text(encoding="utf-8").splitlines() if self._path.exists() else []
        self._known = {line["key"]: Result(**line["result"]) for line in map(json.loads, lines)}

    def take(self, play: Play) -> Result:
        """The result of a run, played if it is not known."""
        key = sha256(json.dumps([settings(play), asdict(play), self._code]).encode()).hexdigest()
        if key not in self._known:
            self._known[key] = played(play)
            line = {"key": key, "play": asdict(play), "result": asdict(self._known[key])}
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        return self._known[key]


def code() -> str:
    """A mark of the code that a result depends on most; delete runs/robustness when something else has changed."""
    files = [*sorted(Path(robust.__path__[0]).glob("*.py")), Path(attacks.__file__)]
    return f"{zlib.crc32(b''.join(path.read_bytes() for path in files)):08x}"


def available(data: str) -> bool:
    """Whether the data set is here."""
    try:
        prepared(data, SEEDS[0])
    except ConfigError as error:
        sys.stderr.write(f"{data} is left out: {error}\n")
        return False
    return True


def main() -> None:
    """Play what is not known yet, and write the page after every seed."""
    logging.disable(logging.WARNING)
    known, results = Results(OUT), dict[Play, Result]()
    names = [data for data in DATA if available(data)]
    for seed in SEEDS:
        for data in names:
            for play in plan(data, seed):
                results[play] = known.take(play)
            sys.stderr.write(f"{data}, seed {seed}: done\n")
        robustness_page.write(results)


if __name__ == "__main__":
    main()
