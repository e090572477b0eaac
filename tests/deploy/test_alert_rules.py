"""deploy/prometheus: rules that Prometheus takes, about metrics that there are."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from edgefl.server.http import alert_metrics
from edgefl.watch.exporters import prometheus

FILE = Path(__file__).parents[2] / "deploy" / "prometheus" / "edgefl.rules.yml"
RULES = [rule for group in yaml.safe_load(FILE.read_text())["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule_says_what_is_wrong_and_what_to_do(rule):
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert set(rule["annotations"]) == {"summary", "description"}
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert rule["expr"].count("(") == rule["expr"].count(")")


def test_rules_ask_for_metrics_that_there_are():
    names = {metric.name for metric in prometheus.metrics()}
    names |= {alert_metrics.OPEN.name, alert_metrics.WAITING.name}
    asked = {name for rule in RULES for name in re.findall(r"\bedgefl_[a-z_]+", rule["expr"])}
    assert asked
    assert asked <= names


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_takes_the_rules():
    subprocess.run(["promtool", "check", "rules", str(FILE)], check=True, capture_output=True)
