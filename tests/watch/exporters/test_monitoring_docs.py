"""docs/monitoring.md: what stands there can be written into a file, or run."""

import re
from pathlib import Path

from edgefl.job.config.agent_file import AgentFile
from edgefl.job.config.conditions import Conditions
from edgefl.job.config.export import Export
from edgefl.job.config.reader import parse, tomllib
from edgefl.job.config.schema import RunFile
from edgefl.watch.exporters import prometheus
from edgefl.watch.exporters.webhooks import signature

TEXT = (Path(__file__).parents[3] / "docs" / "monitoring.md").read_text(encoding="utf-8")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", TEXT, re.DOTALL)


def test_tables_are_taken_and_name_every_key() -> None:
    conditions, exports, webhooks = map(tomllib.loads, blocks("toml"))
    agent = parse(AgentFile, conditions, "monitoring.md", environment={})
    assert set(conditions["conditions"]) == set(Conditions.model_fields)
    assert agent.conditions != Conditions()
    both = {"export": {**exports["export"], **webhooks["export"]}, "rounds": {"cohort": 1}}
    run = parse(RunFile, both, "monitoring.md", environment={})
    assert {name for name in Export.model_fields if getattr(run.export, name)} == {"mlflow", "wandb", "webhooks"} | {
        "tensorboard"
    }
    (hook,) = run.export.webhooks
    assert hook.events == type(hook).model_fields["events"].default


def test_a_receiver_can_tell_that_a_message_is_genuine() -> None:
    (code,) = blocks("python")
    names: dict[str, object] = {}
    exec(code, names)
    genuine = names["genuine"]
    headers = {"X-Edgefl-Timestamp": "1700000000", "X-Edgefl-Signature": signature(b"word", "1700000000", b"{}")}
    assert genuine(b"word", headers, b"{}")  # type: ignore[operator]
    assert not genuine(b"word", headers, b"{ }")  # type: ignore[operator]
    assert not genuine(b"other", headers, b"{}")  # type: ignore[operator]


def test_metrics_that_are_named_exist() -> None:
    named = set(re.findall(r"\bedgefl_[a-z_]+", TEXT))
    assert named
    assert named <= {metric.name for metric in prometheus.metrics()}
