"""Settings are chosen by a part of the training data; only the chosen ones see the test data."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import edgefl
from edgefl.base.errors import ConfigError, RunError
from edgefl.base.events import Done, Evaluating, Round, Tell
from edgefl.cli.app import app
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.job.config.toml_text import table
from edgefl.job.run import job as jobs
from edgefl.lab.comparison import sweep as sweeps
from edgefl.lab.comparison.edges import edges
from edgefl.lab.comparison.grid import families
from edgefl.lab.comparison.outcomes import PlayedRun
from edgefl.lab.comparison.sweep import Trial, choose, sweep, to_test

BASE: dict[str, Any] = {
    "run": {"name": "tiny", "rounds": 3, "seed": 4},
    "task": {
        "data": "digits",
        "model": "softmax",
        "backend": "torch",
        "public": 0.1,
        "partition": {"kind": "dirichlet", "devices": 5, "omega": 0.3},
    },
    "algorithm": {"name": "fedavg", "lr": 0.2, "batches": 3},
    "rounds": {"cohort": 2},
}


def rows(data: Any) -> set[bytes]:
    return {sample.tobytes() for sample in data.x}


# ── grids ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_family_is_every_combination_of_the_values_that_an_entry_and_the_grid_name():
    plain, prox = families("fedavg,fedprox:mu=0.01|1", ["lr=0.1,0.3"], BASE, "run.toml")
    assert (plain.label, [s.label for s in plain.settings]) == ("fedavg", ["lr=0.1", "lr=0.3"])
    assert [s.label for s in prox.settings] == ["mu=0.01 lr=0.1", "mu=0.01 lr=0.3", "mu=1 lr=0.1", "mu=1 lr=0.3"]
    assert [s.run.algorithm["mu"] for s in prox.settings] == [0.01, 0.01, 1, 1]
    assert prox.label == "fedprox"


def test_a_key_of_the_grid_is_for_those_who_have_it_and_an_entry_may_overrule_it():
    plain, prox = families("fedavg,p=fedprox:lr=0.5", ["mu=0.1,1", "lr=0.1,0.2"], BASE, "run.toml")
    assert [s.label for s in plain.settings] == ["lr=0.1", "lr=0.2"]
    assert (prox.label, [s.label for s in prox.settings]) == ("p", ["mu=0.1", "mu=1"])
    assert {s.run.algorithm["lr"] for s in prox.settings} == {0.5}


def test_a_grid_of_one_value_sets_it():
    (family,) = families("fedavg", ["lr=0.3"], BASE, "run.toml")
    assert [setting.run.algorithm["lr"] for setting in family.settings] == [0.3]


def test_keys_of_stages_and_of_the_run_file_can_be_chosen_too():
    (family,) = families("fedavg:rounds.cohort=2|3+clip:norm=1.0|2.0", [], BASE, "run.toml")
    assert [(s.run.cohort, s.run.make_stages()[-1].norm) for s in family.settings] == [(2, 1), (2, 2), (3, 1), (3, 2)]
    assert family.label == "fedavg+clip"


@pytest.mark.parametrize(
    ("words", "grids", "message"),
    [
        ("fedavg", ["mu=1,2"], "no algorithm of --algorithms has such a key"),
        ("fedavg", ["lr"], "write it as key=value,value"),
        ("fedavg:lr=0.1|0.2,fedavg", [], "'fedavg' stands there twice"),
        ("fedavg:mmu=1|2", [], "unknown key 'mmu'"),
        (" ", [], "is empty"),
    ],
)
def test_a_wrong_grid_is_named(words: str, grids: list[str], message: str):
    with pytest.raises(ConfigError, match=message):
        families(words, grids, BASE, "run.toml")


# ── the split ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("judge", ["coordinator", "devices", "both"])
@pytest.mark.parametrize("place", ["devices", "public"])
def test_no_test_sample_is_anywhere_in_what_settings_are_chosen_by(judge: str, place: str):
    table = {**BASE, "evaluation": {"on": judge}}
    run = parse(RunFile, table, "run.toml")
    tested, chosen = jobs.split(run), jobs.split(sweeps.to_choose(run, 0.25, place))
    seen = set[bytes]().union(*map(rows, (*chosen.devices, chosen.public, chosen.test)))
    assert not seen & (rows(tested.test) - rows(tested.public).union(*map(rows, tested.devices)))
    count = sum(map(len, chosen.devices)) + len(chosen.public) + len(chosen.test)
    held_back = sum(round(0.2 * len(part)) for part in tested.devices) if judge != "coordinator" else 0
    assert count == sum(map(len, tested.devices)) + len(tested.public) - held_back, "no sample is in two places"
    assert len(chosen.test) > 10


def test_what_devices_test_on_is_not_what_they_choose_on():
    run = parse(RunFile, {**BASE, "evaluation": {"on": "devices"}}, "run.toml")
    from edgefl.sim.engines import held

    def by_name(one: RunFile) -> dict[str, Any]:
        return held(one, dict(zip(jobs.device_names(5), jobs.split(one).devices, strict=True)))

    tested, chosen = by_name(run), by_name(sweeps.to_choose(run, 0.25, "devices"))
    for name, (_, aside) in tested.items():
        trained_on, judged_by = chosen[name]
        assert not rows(aside) & (rows(trained_on) | rows(judged_by))
        assert len(judged_by)


def test_the_part_depends_on_the_seed_and_on_nothing_else():
    run = sweeps.to_choose(parse(RunFile, BASE, "run.toml"), 0.25, "devices")
    other = run.model_copy(update={"run": run.run.model_copy(update={"seed": 5})})
    first, again, another = (jobs.split(one).test.x for one in (run, run, other))
    assert np.array_equal(first, again)
    assert first.shape != another.shape or not np.array_equal(first, another)


def test_public_data_that_are_not_there_cannot_be_chosen_by():
    task = {**BASE["task"], "public": 0.0}
    run = sweeps.to_choose(parse(RunFile, {**BASE, "task": task}, "run.toml"), 0.25, "public")
    with pytest.raises(ConfigError, match=r"raise task\.public"):
        jobs.split(run)


# ── choosing ─────────────────────────────────────────────────────────────────────────────────────────────────

asked = list[tuple[str, float, int, int]]()


def pretend(run: RunFile, _root: Path | None, tell: Tell) -> None:
    """Small steps are better on validation data, large ones on test data."""
    validation, lr = run.evaluation.validation is not None, run.algorithm["lr"]
    asked.append(("validation" if validation else "test", lr, run.run.seed, run.run.rounds))
    if lr == 9.0:
        raise RunError("it diverged")
    split = "validation" if validation else "test"
    tell(Evaluating("d", 9, 0, None, 0, 2, None, split=split, first={"accuracy": 0.1, "loss": 3.0}))
    accuracy = 1 - lr / 10 if validation else lr / 10
    rounds = 2 if run.evaluation.patience else run.run.rounds
    for round in range(1, rounds + 1):
        tell(Round(round, devices=2, scores={"accuracy": accuracy}))
    tell(Done(run.run.name, "fedavg", rounds))


def test_the_best_on_validation_data_is_tested_with_every_seed_and_no_other_setting_is():
    asked.clear()
    chosen = families("fedavg:lr=3.0|1.0|9.0", [], BASE, "run.toml")
    result = sweep(chosen, seeds=3, tuning_seeds=2, play=pretend)
    (choice,) = result.choices
    assert choice.chosen.setting.values == {"lr": "1.0"}
    assert [trial.failed for trial in choice.trials] == [(), (), ("it diverged", "it diverged")]
    assert sorted(a[1:3] for a in asked if a[0] == "test") == [(1.0, 4), (1.0, 5), (1.0, 6)]
    assert [run.split for run in result.tested.played] == ["test"] * 3
    assert "chosen" in result.text()
    assert result.as_json()["choices"][0]["trials"][2]["mean"] is None


def test_a_run_that_was_judged_by_test_data_chooses_nothing():
    def careless(run: RunFile, root: Path | None, tell: Tell) -> None:
        pretend(run.model_copy(update={"evaluation": parse(RunFile, BASE, "").evaluation}), root, tell)

    with pytest.raises(ValueError, match="was judged by test data; nothing is chosen by these"):
        sweep(families("fedavg:lr=3.0|1.0", [], BASE, "run.toml"), play=careless)


def test_patience_looks_at_validation_data_and_the_test_lasts_as_long():
    asked.clear()
    table = {**BASE, "evaluation": {"patience": 1}}
    sweep(families("fedavg:lr=3.0|1.0", [], table, "run.toml"), play=pretend)
    assert [rounds for split, *_, rounds in asked if split == "test"] == [2]


def test_a_loss_is_the_better_the_lower_and_of_equals_the_first_is_chosen():
    (family,) = families("fedavg:lr=0.1|0.2|0.3", [], BASE, "run.toml")
    trials = [Trial(s, {0: score}, 3, "loss") for s, score in zip(family.settings, [2.0, 1.0, 1.0], strict=True)]
    assert choose(trials) is trials[1]
    assert to_test(trials[1]).evaluation.validation is None


def test_when_every_setting_fails_the_sweep_says_why():
    with pytest.raises(RunError, match="no setting came to its end; the first one: it diverged"):
        sweep(families("fedavg:lr=9.0", [], BASE, "run.toml"), play=pretend)


def test_a_real_sweep_is_judged_by_validation_samples_and_then_by_test_samples():
    result = sweep(families("fedavg:lr=0.05|0.3", [], BASE, "run.toml"), tuning_seeds=1, seeds=2)
    assert len(result.tested.played) == 2
    assert all(isinstance(run, PlayedRun) and run.first is not None for run in result.tested.outcomes)


# ── the edge of a grid ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("chosen", "tried", "found"),
    [
        ("0.1", ["0.01", "0.1", "1"], {}),
        ("1", ["0.01", "0.1", "1"], {"key": "largest"}),
        ("1e-2", ["0.1", "1e-2", "1"], {"key": "smallest"}),
        ("0", ["0", "1"], {}),
        ("1", ["0", "1"], {"key": "largest"}),
        ("10", ["9", "10", "11"], {}),
        ("0.1", ["0.1"], {}),
        ("1", ["1", "1.0"], {}),
        ("true", ["true", "false"], {}),
        ("uniform", ["samples", "uniform"], {}),
    ],
)
def test_a_number_with_nothing_tried_beyond_it_is_at_the_edge(chosen: str, tried: list[str], found: dict[str, str]):
    at_edge = edges({"key": chosen}, [{"key": value} for value in tried])
    assert {edge.key: edge.side for edge in at_edge} == found


def test_a_sweep_says_so_in_log_table_page_and_results(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    result = sweep(families("fedavg:lr=0.001|0.3", [], BASE, "run.toml"))
    said = "fedavg: lr = 0.3 is the largest value that was tried, so a larger one may be better: add some to the grid"
    assert caplog.messages.count(said) == 1
    assert said in result.text()
    assert "| * largest lr |" in result.text()
    assert result.as_json()["choices"][0]["at_edge"] == {"lr": "largest"}
    page = result.write(tmp_path)
    assert f"<p>{said}</p>" in page.read_text()
    assert said in (tmp_path / "table.md").read_text()
    assert json.loads((tmp_path / "results.json").read_text())["choices"][0]["at_edge"] == {"lr": "largest"}


def test_a_sweep_whose_best_value_lies_inside_its_grid_says_nothing(caplog: pytest.LogCaptureFixture):
    inside = sweep(families("fedavg:lr=0.001|0.3|1e6", [], BASE, "run.toml"))
    assert inside.choices[0].chosen.setting.values == {"lr": "0.3"}
    assert inside.choices[0].at_edge == ()
    assert "was tried" not in inside.text() + caplog.text


def test_from_python_a_sweep_and_a_comparison_with_a_grid_have_it():
    given: dict[str, Any] = {"grid": {"lr": [0.001, 0.3]}, "fleet": 4, "rounds": 2, "progress": False}
    for result in (
        edgefl.sweep("softmax", "digits", algorithms="fedavg", **given),
        edgefl.compare("softmax", "digits", algorithms="fedavg", **given),
    ):
        assert result.at_edge == {"fedavg": {"lr": "largest"}}
        assert "fedavg: lr = 0.3 is the largest value that was tried" in str(result)
    wide = edgefl.sweep("softmax", "digits", algorithms="fedavg", **given | {"grid": {"lr": [0.001, 0.3, 1e6]}})
    assert wide.at_edge == {}


# ── compare with a grid ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("words", [["fedavg:lr=0.001|0.3"], ["fedavg", "--grid", "lr=0.001,0.3"]])
def test_compare_with_a_grid_is_a_sweep(words: list[str], tmp_path: Path):
    file = tmp_path / "run.toml"
    file.write_text("\n".join(table(section, values) for section, values in BASE.items()))
    command = ["compare", str(file), "--out", str(tmp_path / "out"), "--json", "--algorithms", *words]
    told = CliRunner().invoke(app, command)
    assert told.exit_code == 0, told.output
    (choice,) = json.loads((tmp_path / "out" / "results.json").read_text())["choices"]
    assert choice["chosen"] == {"lr": "0.3"}
    splits = [json.loads(line)["split"] for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()]
    assert splits == ["validation", "validation", "test"], "what is chosen by, and what was chosen"


def test_a_baseline_that_is_no_entry_is_said_before_anything_is_played():
    with pytest.raises(ConfigError, match="baseline 'other' is none of fedavg"):
        sweep(families("fedavg", ["lr=0.1,0.3"], BASE, "run.toml"), baseline="other", play=unplayed)


def unplayed(run: RunFile, root: Path | None, tell: Tell) -> None:
    raise AssertionError("nothing is to be played")
