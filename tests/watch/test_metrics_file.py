"""The metrics file has every round once: after a restart, after a power cut, and when the disk was full."""

import json
from random import Random

from edgefl.base.events import Round, from_json
from edgefl.watch.metrics_file import METRICS, MetricsFile, reports
from tools.failing_disk import FailingDisk


def rounds(disk: FailingDisk) -> list[Round]:
    return [from_json(json.loads(line)) for line in (disk.read(METRICS) or b"").splitlines()]  # type: ignore[misc]


def test_a_round_that_is_told_again_is_not_written_again():
    disk = FailingDisk()
    MetricsFile(disk)(Round(1))
    again = MetricsFile(disk)
    again(Round(1))
    again(Round(2))
    assert [fact.round for fact in rounds(disk)] == [1, 2]


def test_what_a_power_cut_spoiled_is_cut_off_with_the_next_round():
    disk = FailingDisk()
    MetricsFile(disk)(Round(1))
    disk.append(METRICS, b'{"event": "round", "rou')
    MetricsFile(disk)(Round(2))
    assert [fact.round for fact in rounds(disk)] == [1, 2]


def test_on_a_full_disk_rounds_wait_and_come_in_order(caplog):
    disk = FailingDisk()
    tell = MetricsFile(disk)
    tell(Round(1))
    disk.capacity = disk.used
    tell(Round(2))
    assert "metrics wait why=memory/metrics.jsonl: cannot be written (No space left" in caplog.text
    disk.capacity = None
    tell(Round(3))
    disk.crash(Random(1))
    assert [fact.round for fact in rounds(disk)] == [1, 2, 3]


def test_a_file_of_schema_1_is_read_and_goes_on_in_schema_2():
    disk = FailingDisk()
    disk.append(
        METRICS, b'{"event": "round", "round": 1, "accuracy": 0.5, "loss": 1.0, "rmse": null, "scores": null}\n'
    )
    MetricsFile(disk)(Round(1, {"accuracy": 0.5, "loss": 1.0}), Round(2, {"accuracy": 0.75, "loss": 0.5}))
    first, second = (json.loads(line) for line in (disk.read(METRICS) or b"").splitlines())
    assert "schema" not in first, "a line that is there is not written again"
    assert (second["schema"], second["scores"]) == (2, {"accuracy": 0.75, "loss": 0.5})
    assert "accuracy" not in second
    assert [fact.accuracy for fact in reports(disk) if isinstance(fact, Round)] == [0.5, 0.75]
