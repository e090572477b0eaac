"""What attackers can do, and what each defence does about it: `python robustness.py` plays all and writes the page.

Every run is kept in runs/robustness as soon as it is done, under everything that it depends on: started again, the
script goes on where it was stopped, and plays again only what has changed. A data set that is not there is left out.

The seeds are for testing alone: nothing was chosen by them. What was chosen, and by what, is in robustness_choice.py.
"""

import json
import logging
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from functools import cache
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import Any

import attacks
import numpy as np
import robustness_page
from attacks import ATTACKS, TARGET, Attacked, stamped
from robustness_page import Play, Result
from small_mlp import SmallMlp

from edgefl.base import seeds
from edgefl.base.errors import ConfigError, Diverged
from edgefl.base.events import Fact, Round
from edgefl.job.config.reader import parse, toml_value
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.job.run.job import Job, RunState
from edgefl.learn import robust
from edgefl.learn.data.dataset import Dataset
from edgefl.sim.loop import simulate

OUT = Path("runs", "robustness")
SEEDS = (18, 19, 20)
SHARES = (0.1, 0.2, 0.3)
LAST = 3  # rounds whose mean accuracy is a run's result
VALIDATION = {"validation": 0.2}  # of each device's samples, where a play is judged by them
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


def defence(name: str) -> dict[str, Any]:
    """The tables of a defence: one of the above, or stages in words, as in "norm_clip trimmed_mean:share=0.1"."""
    return DEFENCES[name] if name in DEFENCES else {"aggregation": [stage(word) for word in name.split()]}


def stage(word: str) -> dict[str, Any]:
    """The table of a stage, from name:key=value..."""
    name, *keys = word.split(":")
    return {"name": name, **{key: toml_value(value) for key, _, value in (pair.partition("=") for pair in keys)}}


def settings(play: Play) -> dict[str, Any]:
    """The run file of a play, as tables."""
    table = {**DATA[play.data], **defence(play.defence)}
    judged = {"evaluation": VALIDATION} if play.judged == "validation" else {}
    return {**table, **judged, "run": {**table["run"], "seed": play.seed}}


def run_file(play: Play) -> RunFile:
    """The run file of a play."""
    return parse(RunFile, settings(play), "robustness", environment={})


@cache
def prepared(data: str, seed: int, judged: str = "test") -> tuple[Job, dict[str, Dataset]]:
    """The job without a defence and everybody's data: made once, because it takes longer than a run."""
    job, held = jobs.prepare(run_file(Play(data, seed, "none", judged=judged)))
    network = SmallMlp(job.sample, job.classes)
    job = replace(job, model=network, device_model=network, start=network.start(seed))
    return job, dict(zip(jobs.device_names(len(held.devices)), held.devices, strict=True))


def attackers(play: Play, devices: Mapping[str, Dataset]) -> list[str]:
    """Who attacks: the same devices in all runs of a seed, and more of them for a larger share."""
    order = seeds.stream(play.seed, "attackers").permutation(sorted(devices))
    return [str(name) for name in order[: round(play.share * len(devices))]]


def played(play: Play) -> Result:
    """The result of a run."""
    plain, devices = prepared(play.data, play.seed, play.judged)
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
    """Which share of the samples of other classes is taken for the target when it bears the trigger."""
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

    def take(self, plays: Iterable[Play]) -> dict[Play, Result]:
        """The results of these runs; what is not known is played, on all processors."""
        keys = {play: self._key(play) for play in plays}
        unknown = [play for play, key in keys.items() if key not in self._known]
        spawn = get_context("spawn")  # onnxruntime's threads cannot be forked
        with ProcessPoolExecutor(mp_context=spawn, initializer=logging.disable, initargs=(logging.WARNING,)) as pool:
            for play, result in zip(unknown, pool.map(played, unknown), strict=True):
                self._keep(play, keys[play], result)
        return {play: self._known[key] for play, key in keys.items()}

    def _key(self, play: Play) -> str:
        stages = [str(stage) for stage in run_file(play).make_stages()]
        return sha256(json.dumps([settings(play), stages, asdict(play), self._code]).encode()).hexdigest()

    def _keep(self, play: Play, key: str, result: Result) -> None:
        self._known[key] = result
        line = {"key": key, "play": asdict(play), "result": asdict(result)}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def code() -> str:
    """A mark of the code that a result depends on most; delete runs/robustness when something else has changed."""
    stages = sorted(Path(robust.__path__[0]).glob("*.py"))
    files = [*(path for path in stages if path.stem != "majority"), Path(attacks.__file__)]  # which only names stages
    return f"{zlib.crc32(b''.join(path.read_bytes() for path in files)):08x}"


def available(data: str, judged: str = "test") -> bool:
    """Whether the data set is here."""
    try:
        prepared(data, SEEDS[0], judged)
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
            results |= known.take(plan(data, seed))
            sys.stderr.write(f"{data}, seed {seed}: done\n")
        robustness_page.write(robustness_page.TABLES, robustness_page.tables(results))


if __name__ == "__main__":
    main()
