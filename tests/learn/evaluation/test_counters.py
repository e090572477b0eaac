"""Every single number that an algorithm keeps is reported, and nothing else."""

import json

import numpy as np

from edgefl.base.events import as_json
from edgefl.job.run.job import RunState
from edgefl.job.run.reporting import report
from edgefl.learn.contract import Update
from edgefl.learn.evaluation.counters import of_stages, of_updates


def test_single_numbers_of_any_kind_are_reported_and_arrays_and_words_are_not():
    state = {
        "unsolved": np.array(2),
        "shrunk": np.array(0.5, np.float32),
        "told": np.array(True),
        "rows": np.zeros(3),
        "one": np.zeros(1),
        "name": np.array("pi"),
    }
    assert of_stages({"memory": state}) == {"memory": {"unsolved": 2, "shrunk": 0.5, "told": True}}


def test_a_stage_that_counts_nothing_is_not_mentioned():
    assert of_stages({"mean": {}, "momentum": {"m": np.zeros(3)}}) == {}


def test_what_devices_counted_is_summed():
    updates = {name: Update(np.zeros(1), 1.0, 1, {"corrected": np.array(n)}) for name, n in (("a", 3), ("b", 4))}
    updates["c"] = Update(np.zeros(1), 1.0, 1, {"c": np.zeros(2)})
    assert of_updates(updates) == {"corrected": 7}


def test_a_round_that_counted_something_that_is_not_finite_is_still_json():
    told = report(RunState(1, np.zeros(1), states={"sgc": {"largest": np.array(np.inf)}}), {})
    assert json.loads(json.dumps(as_json(told), allow_nan=False))["stages"] == {"sgc": {"largest": None}}
