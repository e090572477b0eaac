"""A run that was given more rounds ends with the model that it would have had with so many from the beginning."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from fleets import Fleet, loop, prepared, run_file

from coordinator.durable.existing_run import extend, settle
from coordinator.durable.journal import Journal
from coordinator.shell.setup import Security
from coordinator.shell.threaded import Threaded
from edgefl.base.errors import ConfigError, Interrupted
from edgefl.base.events import Changed, Evaluated, Fact, Round
from edgefl.job.config.schema import RunFile
from edgefl.system.disk import FolderDisk
from edgefl.watch.metrics_file import METRICS, MetricsFile
from edgefl.wire.signing import Signer
from tools.in_memory_broker import InMemoryBroker


class Stage:
    """A fleet that stays, and one coordinator after another for the same run."""

    def __init__(self, run: RunFile, folder: Path) -> None:
        self.broker, self.folder, self.signer = InMemoryBroker(), folder / "run", Signer.new()
        self.fleet = Fleet(run, folder / "devices", self.broker.client, once=False)
        self.fleet.start_all()
        self.starts = 0
        self.told: list[Fact] = []

    def coordinate(self, run: RunFile, *, stop_in: int | None = None) -> str:
        """The hash of the model at the end; interrupted as soon as this round is asked."""
        run = settle(self.folder, run)
        metrics, self.starts = MetricsFile(FolderDisk(self.folder)), self.starts + 1

        def tell(fact: Fact) -> None:
            self.told.append(fact)
            metrics(fact)
            if stop_in is not None and type(fact).__name__ == "Asked" and fact.round == stop_in:  # type: ignore[attr-defined]
                coordinator.stop()

        client = self.broker.client(f"coordinator-{self.starts}")
        security = Security(self.signer)
        coordinator = Threaded(run, client, lambda: prepared(run)[0], folder=self.folder, tell=tell, security=security)
        sha256 = coordinator.run().sha256()
        Journal(FolderDisk(self.folder)).set(done="yes")
        return sha256

    def close(self) -> None:
        self.fleet.stop()
        self.fleet.join()


def the_run(algorithm: dict[str, Any], rounds: int, **more: Any) -> RunFile:
    return run_file(algorithm, run={"rounds": rounds}, **more)


STATEFUL = [{"name": "scaffold"}, {"name": "feddyn"}, {"name": "fedgc"}, {"name": "gradma", "memories": 4}]
FREE = {"name": "upcycled"}  # round 4 needs nobody: behind the end of three rounds it is made up for


@pytest.mark.parametrize(
    ("algorithm", "first", "more"), [*((algorithm, 2, 2) for algorithm in STATEFUL), (FREE, 3, 2), (FREE, 2, 2)]
)
def test_an_extended_run_is_the_longer_run(algorithm: dict[str, Any], first: int, more: int, tmp_path: Path) -> None:
    run = the_run(algorithm, first)
    stage = Stage(run, tmp_path)
    assert stage.coordinate(run) == loop(run).sha256()
    extend(stage.folder, run, more)
    assert stage.coordinate(run) == loop(the_run(algorithm, first + more)).sha256()
    stage.close()
    lines = [json.loads(line) for line in (stage.folder / METRICS).read_text().splitlines()]
    told = [(line["event"], line.get("round", line.get("rounds"))) for line in lines]
    rounds = [("round", number) for number in range(1, first + more + 1)]
    assert told == [*rounds[:first], ("done", first), *rounds[first:], ("done", first + more)]
    story = list(Journal(FolderDisk(stage.folder), reading=True).story())
    assert [(one.key, one.before, one.now) for one in story if isinstance(one, Changed)] == [
        ("run.rounds", first, first + more)
    ]
    assert set(Counter(one.round for one in story if isinstance(one, Round)).values()) == {1}, "told once each"


def test_an_extended_run_that_is_interrupted_goes_on_without_being_told_again(tmp_path: Path) -> None:
    run = the_run({"name": "scaffold"}, 2)
    stage = Stage(run, tmp_path)
    stage.coordinate(run)
    extend(stage.folder, run, 2)
    with pytest.raises(Interrupted):
        stage.coordinate(run, stop_in=4)
    assert stage.coordinate(run) == loop(the_run({"name": "scaffold"}, 4)).sha256()
    extend(stage.folder, run, 1)
    assert stage.coordinate(run) == loop(the_run({"name": "scaffold"}, 5)).sha256()
    stage.close()


def test_an_unfinished_run_is_extended_too(tmp_path: Path) -> None:
    run = the_run({"name": "gradma", "memories": 4}, 3)
    stage = Stage(run, tmp_path)
    with pytest.raises(Interrupted):
        stage.coordinate(run, stop_in=2)
    extend(stage.folder, run, 2)
    assert stage.coordinate(run) == loop(the_run({"name": "gradma", "memories": 4}, 5)).sha256()
    stage.close()


def test_a_run_that_its_devices_judge_is_extended_too(tmp_path: Path) -> None:
    judged = {"evaluation": {"on": "devices"}}
    run, longer = (the_run({"name": "scaffold"}, rounds, **judged) for rounds in (2, 4))
    stage = Stage(run, tmp_path)
    assert stage.coordinate(run) == loop(run).sha256()
    extend(stage.folder, run, 2)
    assert stage.coordinate(run) == loop(longer).sha256()
    stage.close()
    story = list(Journal(FolderDisk(stage.folder), reading=True).story())
    assert [one.round for one in story if isinstance(one, Evaluated)] == [0, 1, 2, 3, 4]


def test_a_run_that_reached_its_target_wants_another_one_first(tmp_path: Path) -> None:
    easy = run_file({"name": "fedavg"}, run={"rounds": 4, "target_accuracy": 0.01})
    stage = Stage(easy, tmp_path)
    stage.coordinate(easy)
    with pytest.raises(ConfigError, match="ended in round 1 because its model was good enough"):
        extend(stage.folder, easy, 2)
    hard = run_file({"name": "fedavg"}, run={"rounds": 4, "target_accuracy": 1.0})
    extend(stage.folder, hard, 2)
    assert stage.coordinate(hard) == loop(the_run({"name": "fedavg"}, 3)).sha256()
    stage.close()


def test_a_run_that_lost_its_patience_wants_more_of_it_first(tmp_path: Path) -> None:
    evaluation = {"on": "devices", "least": 1, "patience": 1}
    worse = {"name": "scaffold", "lr": 20.0}  # with such a step no model is better than the first
    impatient = run_file(worse, run={"rounds": 30}, evaluation=evaluation)
    stage = Stage(impatient, tmp_path)
    stage.coordinate(impatient)
    with pytest.raises(ConfigError, match=r"or got no better: change what ended it"):
        extend(stage.folder, impatient, 2)
    ended = loop(impatient).round
    patient = run_file(worse, run={"rounds": 30}, evaluation={**evaluation, "patience": 100})
    extend(stage.folder, patient, 2)
    longer = run_file(worse, run={"rounds": ended + 2}, evaluation={**evaluation, "patience": 100})
    assert stage.coordinate(patient) == loop(longer).sha256()
    stage.close()
