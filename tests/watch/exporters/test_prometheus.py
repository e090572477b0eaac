"""What Prometheus is told, read by its own parser; and that the dashboard asks for what there is."""

import json
import math
import re
from pathlib import Path

import pytest
from stories import DONE, EVALUATING, ROUNDS, SEEN, STARTED

from edgefl.base.events import Answered, Asked, Fact, Joined, Lost, Round, Vitals
from edgefl.watch.exporters import prometheus
from edgefl.watch.overview.overview import Overview

parser = pytest.importorskip("prometheus_client.parser", reason="needs prometheus-client, of the extra 'dev'")
DASHBOARD = Path(__file__).parents[3] / "deploy" / "grafana" / "edgefl.json"
STORY: tuple[Fact, ...] = (
    STARTED,
    EVALUATING,
    *(Joined(name, 10, at=1002.0) for name in ("a", "b")),
    Vitals("a", temperature=61.5, throttled=False, disk_free=10, disk_total=20, at=1003.0),
    Asked(1, 1, ("a", "b"), 50, at=1004.0),
    Answered("a", 1, 100, took=2.5, seconds_per_step=0.25, at=1006.0),
    ROUNDS[0],
    Lost("b", at=1011.0),
)


def told(*facts: Fact) -> Overview:
    overview = Overview()
    for fact in facts:
        overview.tell(fact)
    return overview


def read(overview: Overview, **more: int) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every sample by its name and labels, `run` aside."""
    samples = {}
    for family in parser.text_string_to_metric_families(prometheus.text(prometheus.standing_of(overview), **more)):
        assert family.documentation
        assert family.type in ("gauge", "counter")
        for sample in family.samples:
            assert sample.labels["run"] == overview.run.name
            labels = tuple(sorted((key, value) for key, value in sample.labels.items() if key != "run"))
            assert (sample.name, labels) not in samples, "each series once"
            samples[sample.name, labels] = sample.value
    return samples


def test_where_a_run_stands() -> None:
    samples = read(told(*STORY))
    assert samples["edgefl_run_info", (("algorithm", "fedgc"), ("run_id", STARTED.run_id))] == 1
    assert samples["edgefl_rounds_merged", ()] == 1
    assert samples["edgefl_rounds_planned", ()] == 3
    assert samples["edgefl_accuracy_ratio", ()] == 0.5
    assert samples["edgefl_last_round_timestamp_seconds", ()] == 1010.0
    assert samples["edgefl_received_bytes_total", ()] == 100
    assert samples["edgefl_class_accuracy_ratio", (("class", "sitting down"),)] == 0.5
    assert ("edgefl_class_accuracy_ratio", (("class", "walking 100%"),)) not in samples
    assert ("edgefl_root_mean_squared_error", ()) not in samples
    assert samples["edgefl_devices", (("state", "offline"),)] == 1
    assert samples["edgefl_broker_up", ()] == 1
    states = {labels[0][1]: value for (name, labels), value in samples.items() if name == "edgefl_run_state"}
    assert sum(states.values()) == 1


def test_how_each_device_fares() -> None:
    samples = read(told(*STORY))
    a, b = (("device", "a"),), (("device", "b"),)
    assert samples["edgefl_device_temperature_celsius", a] == 61.5
    assert samples["edgefl_device_throttled", a] == 0
    assert samples["edgefl_device_disk_free_bytes", a] == 10
    assert samples["edgefl_device_answer_seconds", a] == 2.5
    assert samples["edgefl_device_vitals_timestamp_seconds", a] == 1003.0
    assert (samples["edgefl_device_up", a], samples["edgefl_device_up", b]) == (1, 0)
    assert ("edgefl_device_battery_ratio", a) not in samples
    assert ("edgefl_device_temperature_celsius", b) not in samples


def test_figures_are_those_of_the_metrics_whatever_happens_next() -> None:
    overview = told(*STORY, *ROUNDS[1:], DONE)
    samples = read(overview)
    assert samples["edgefl_received_bytes_total", ()] == sum(fact.bytes_up for fact in ROUNDS)
    assert samples["edgefl_accuracy_ratio", ()] == ROUNDS[-1].accuracy
    assert samples["edgefl_run_state", (("state", "finished"),)] == 1


def test_what_devices_saw_last_is_told_under_the_number_of_its_round() -> None:
    samples = read(told(*STORY, *ROUNDS[1:], SEEN))
    assert samples["edgefl_fleet_evaluated_round", ()] == 2
    assert (samples["edgefl_fleet_accuracy_ratio", ()], samples["edgefl_fleet_worst_tenth_score", ()]) == (0.5, 0.375)
    assert ("edgefl_fleet_accuracy_ratio", ()) not in read(told(*STORY))


def test_names_cannot_break_out_and_numbers_may_be_anything() -> None:
    odd = 'x"} 1\nedgefl_accuracy_ratio{run="y\\'
    samples = read(told(STARTED, Joined(odd, at=1.0), Vitals(odd, temperature=math.inf, load=math.nan, at=2.0)))
    assert samples["edgefl_device_up", (("device", odd),)] == 1
    assert samples["edgefl_device_temperature_celsius", (("device", odd),)] == math.inf
    assert math.isnan(samples["edgefl_device_load_ratio", (("device", odd),)])


def test_before_anything_has_happened_it_is_well_formed() -> None:
    assert read(Overview())["edgefl_rounds_merged", ()] == 0


def test_of_very_many_devices_those_heard_last_have_series() -> None:
    facts = [Joined(f"d{number:03}", at=float(number)) for number in range(50)]
    samples = read(told(STARTED, *facts), most_devices=10)
    up = [labels[0][1] for name, labels in samples if name == "edgefl_device_up"]
    assert up == [f"d{number:03}" for number in range(40, 50)]
    assert samples["edgefl_devices", (("state", "idle"),)] == 50


def test_names_and_units_are_by_the_conventions() -> None:
    for metric in prometheus.metrics():
        assert re.fullmatch(r"edgefl(_[a-z0-9]+)+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert not re.search(r"_(ms|milliseconds|minutes|percent|megabytes|kb)\b", metric.name)
        assert metric.help.endswith(".")
    names = [metric.name for metric in prometheus.metrics()]
    assert len(names) == len(set(names))


def test_the_dashboard_asks_for_metrics_that_there_are_and_shows_the_vitals() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    asked = "\n".join(target["expr"] for panel in dashboard["panels"] for target in panel["targets"])
    asked += "\n".join(variable.get("definition", "") for variable in dashboard["templating"]["list"])
    used = set(re.findall(r"\bedgefl_[a-z0-9_]+", asked))
    assert used <= {metric.name for metric in prometheus.metrics()}
    seconds_and_marks = {"at", "charging"}
    assert {metric.name for name, metric in prometheus.VITALS.items() if name not in seconds_and_marks} <= used
    assert {metric.name for metric in prometheus.ROUND.values()} - used <= {"edgefl_last_round_devices"}
    assert {"edgefl_fleet_accuracy_ratio", "edgefl_fleet_worst_tenth_score"} <= used
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))


def test_figures_of_other_tasks_share_a_name_and_the_common_ones_have_their_own() -> None:
    samples = read(told(STARTED, Round(1, {"f1": 0.5, "loss": 0.25}, at=1010.0)))
    assert samples["edgefl_score", (("score", "f1"),)] == 0.5
    assert samples["edgefl_loss", ()] == 0.25
    assert [name for name, _ in samples].count("edgefl_score") == 1
