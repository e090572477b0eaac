"""What privacy costs, where an operator sees it: calibrate before a run, the bill after a simulation or comparison."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from edgefl.base.errors import ConfigError
from edgefl.cli.app import app
from edgefl.learn.privacy import output_epsilon

RUN = """
[run]
name = "bill"
rounds = 4
[task]
data = "synthetic"
model = "softmax"
backend = "torch"
partition = { kind = "iid", devices = 4 }
[algorithm]
name = "upcycled"
batches = 2
[rounds]
cohort = 2
[privacy]
mechanism = "output"
clip = 2.0
sigma = 5.0
delta = 1e-5
"""


def edgefl(*words: str) -> Any:  # click.testing.Result, which typer brings under a name of its own
    return CliRunner().invoke(app, list(words))


@pytest.mark.parametrize(("algorithm", "updates"), [("upcycled", 5), ("fedprox", 9)])
def test_the_sigma_that_calibrate_finds_spends_what_was_asked(algorithm: str, updates: int) -> None:
    asked = ("--epsilon", "8", "--delta", "1e-5", "--rounds", "9", "--clip", "2", "--algorithm", algorithm)
    report = json.loads(edgefl("privacy", "calibrate", *asked, "--json").stdout)
    assert report["updates"] == updates
    assert output_epsilon(updates, 2.0, report["sigma"], 1e-5) == pytest.approx(8)
    plain = edgefl("privacy", "calibrate", *asked, "--samples", "224")
    assert plain.stdout.startswith(f"sigma = {report['sigma']:.6g} ")
    assert "as published" in plain.stdout


def test_unless_told_otherwise_every_round_is_paid_for() -> None:
    report = json.loads(edgefl("privacy", "calibrate", "--epsilon", "8", "--rounds", "9", "--json").stdout)
    assert report["updates"] == 9


def test_a_wish_that_cannot_be_met_is_one_line() -> None:
    refused = edgefl("privacy", "calibrate", "--epsilon", "-1", "--rounds", "9")
    assert isinstance(refused.exception, ConfigError)
    assert str(refused.exception) == "privacy: epsilon = -1 must be above 0"


@pytest.mark.parametrize("driver", [(), ("--emulate",)])
def test_a_simulation_ends_with_what_its_device_that_spent_most_has_spent(tmp_path: Path, driver: tuple[str]) -> None:
    (tmp_path / "run.toml").write_text(RUN)
    words = "simulate", str(tmp_path / "run.toml"), *driver
    told = [json.loads(line) for line in edgefl(*words, "--json").stdout.splitlines()][-1]["privacy"]
    epsilon = output_epsilon(told["updates"], 2.0, 5.0, 1e-5)
    assert told["updates"] in {1, 2}  # of four rounds two are free, and two devices of four are asked
    assert told["epsilon"] == epsilon
    last = edgefl(*words).stdout.splitlines()[-1]
    assert last.startswith(f"privacy: epsilon {epsilon:.4g} at delta 1e-05, after {told['updates']} private updates")
    seeded = edgefl(*words, "--set", "privacy.noise=seeded").stdout.splitlines()[-1]
    assert seeded.startswith("privacy: none")


def test_without_privacy_nothing_is_said(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(RUN[: RUN.index("[privacy]")])
    assert "privacy" not in edgefl("simulate", str(tmp_path / "run.toml")).stdout


def test_the_comparison_of_the_paper_shows_both_figures(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(RUN)
    done = edgefl(
        *("compare", str(tmp_path / "run.toml"), "--out", str(tmp_path / "out"), "--levels", "0.5"),
        *("--algorithms", "fedprox:privacy.sigma=6.0,upcycled"),
    )
    assert done.exit_code == 0, done.stderr
    head, _, fedprox, upcycled = done.stdout.splitlines()[:4]
    assert [cell.strip() for cell in head.split("|")][-3:-1] == ["epsilon", "as published"]
    for row in (fedprox, upcycled):
        epsilon, published = (float(cell) for cell in row.split("|")[-3:-1])
        assert epsilon > 10 * published
    assert "which is no bound" in (tmp_path / "out" / "index.html").read_text()
