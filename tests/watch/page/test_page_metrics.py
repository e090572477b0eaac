"""Prometheus asks the page for its metrics, like any other visitor."""

from pathlib import Path

import pytest
from visitors import Serve

from edgefl.base.events import Joined, Round, Started, Vitals
from edgefl.job.config.page import Page

parser = pytest.importorskip("prometheus_client.parser", reason="needs prometheus-client, of the extra 'dev'")
STARTED = Started("sensors", "1f2e", rounds=5, at=1.0)


def test_metrics_are_what_the_run_came_to_last(serve: Serve) -> None:
    page = serve(STARTED, Joined("a", at=2.0), Vitals("a", temperature=61.5, at=3.0))
    page.feed.tell(Round(1, scores={"accuracy": 0.75}, at=4.0))
    answer = page.ask("/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    families = {one.name: one for one in parser.text_string_to_metric_families(answer.read().decode())}
    assert families["edgefl_accuracy_ratio"].samples[0].value == 0.75
    assert families["edgefl_device_temperature_celsius"].samples[0].labels == {"run": "sensors", "device": "a"}


def test_they_are_guarded_as_everything_else(serve: Serve, tmp_path: Path) -> None:
    page = serve(STARTED, page=Page(port=0, token=tmp_path / "page.token"))
    assert page.ask("/metrics").status == 401
    word = (tmp_path / "page.token").read_text().strip()
    assert page.ask("/metrics", Authorization=f"Bearer {word}").status == 200
