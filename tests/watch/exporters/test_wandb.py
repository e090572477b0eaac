"""What an offline run has left for `wandb sync`, read by W&B's own message types."""

import json
import struct
import time
from pathlib import Path

import pytest
from stories import ROUNDS, STARTED, STORY

from edgefl.job.config.export import Export, Wandb
from edgefl.watch.exporters.opening import Exporters

pytest.importorskip("wandb", reason="needs the extra 'wandb'")
pytestmark = pytest.mark.filterwarnings("ignore")  # of its own making


def tell(folder: Path, *facts, past=()) -> None:
    exporters = Exporters(Export(wandb=Wandb(project="fleets")), folder, {"algorithm.lr": 0.1}, past=lambda: past)
    for fact in facts:
        exporters(fact)
    for aside in exporters.asides:
        aside.close(seconds=120.0)
        assert not aside._thread.is_alive()


BLOCK, HEAD = 32768, 7  # of its files: a log in blocks; the file's own head is as long as that of a piece
WHOLE, LAST = 1, 4


def records(folder: Path):
    """What every offline run of the folder holds."""
    from wandb.proto.wandb_internal_pb2 import Record

    for path in sorted(folder.rglob("*.wandb")):
        data, at, held = path.read_bytes(), HEAD, b""
        while at + HEAD <= len(data):
            if BLOCK - at % BLOCK < HEAD:
                at += BLOCK - at % BLOCK
                continue
            _, size, kind = struct.unpack_from("<IHB", data, at)
            held += data[at + HEAD : at + HEAD + size]
            at += HEAD + size
            if kind in (WHOLE, LAST):
                yield Record.FromString(held)
                held = b""


def curve(folder: Path, name: str, axis: str = "round") -> list[tuple[int, float]]:
    rows = [record.history for record in records(folder) if record.WhichOneof("record_type") == "history"]
    named = [{item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in row.item} for row in rows]
    return [(row[axis], row[name]) for row in named if name in row]


def test_an_offline_run_holds_every_round_once_also_after_a_restart(tmp_path: Path) -> None:
    tell(tmp_path, STARTED, ROUNDS[0])
    second = int(time.time())
    while int(time.time()) == second:  # its folders are named by the second: nobody restarts that fast
        time.sleep(0.01)
    tell(tmp_path, STARTED, *STORY[2:], past=ROUNDS[:2])
    assert curve(tmp_path, "accuracy") == [(1, 0.5), (2, 0.625), (3, 0.75)]
    assert curve(tmp_path, "fleet/accuracy", "fleet/round") == [(2, 0.5)]
    runs = [record.run for record in records(tmp_path) if record.WhichOneof("record_type") == "run"]
    assert {(run.project, run.run_id, run.display_name) for run in runs} == {("fleets", STARTED.run_id, "sensors")}
