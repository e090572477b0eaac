"""Each reader of a format meets a bomb in its tests: a few bytes that stand for much memory or much time.

A reader is a module that calls a decoder: of archives, compressed bytes, tables, pictures, JSON, TOML and the like. One
that is new stands in no list, and fails here. What only takes as many bytes as a file has is no reader.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import bombs
import pytest

from coordinator.durable import run_history
from coordinator.durable.existing_run import begun
from coordinator.durable.journal import Journal
from coordinator.durable.resuming import RequestedRounds
from coordinator.shell.exporting import read
from edgefl.base.errors import ConfigError, EdgeflError, RemoteError, StoreError, WireError
from edgefl.delivery import card
from edgefl.delivery.deployed import Deployed
from edgefl.fleet import kit
from edgefl.job.config import origin
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.lab.api.folder import load
from edgefl.ops.reporting import gather
from edgefl.system.disk import FolderDisk
from edgefl.watch.metrics_file import MetricsReader
from edgefl.watch.overview import snapshot
from edgefl.watch.page.history import PastRuns
from edgefl.wire.messages import Presence, read_json

TESTS = Path(__file__).parent
ROOT = TESTS.parent
PACKAGES = ("edgefl", "device_agent", "coordinator", "gateway")
MEASURING = "edgefl/ops/bench/"  # reads what it wrote itself
DECODERS = frozenset(
    {
        *("json.load", "json.loads", "parse_json", "model_validate_json", "tomllib.loads", "tomllib.load"),
        *("np.load", "read_array", "loadtxt", "genfromtxt", "fromfile", "memmap", "safetensors", "genops"),
        *("ZipFile", "gzip.open", "GzipFile", "decompress", "decompressobj", "bz2.open", "lzma.open", "tarfile.open"),
        *("csv.reader", "ParquetFile", "sqlite3.connect", "Image.open", "image_module.open", "wave.open"),
        *("unpackb", "onnx.load", "onnx.load_from_string", "ParseFromString", "fromstring", "safe_load", "pickle.load"),
    }
)
BOMBS, MODELS, TEXTS = "learn/data/test_bombs.py", "learn/models/test_model_bombs.py", "system/test_json_text.py"
FROM_OUTSIDE: dict[str, tuple[str, ...]] = {
    "edgefl/learn/data/source.py": (f"{BOMBS}::test_a_bomb_is_refused_in_one_line",),
    "edgefl/learn/data/csv_table.py": (f"{BOMBS}::test_a_bomb_is_refused_in_one_line",),
    "edgefl/learn/data/image_folder.py": (f"{BOMBS}::test_a_bomb_is_refused_in_one_line",),
    "edgefl/learn/data/sqlite_rows.py": (
        f"{BOMBS}::test_a_query_of_a_view_has_an_end_and_small_cells",
        f"{BOMBS}::test_a_column_that_a_table_computes_has_small_cells",
    ),
    "edgefl/learn/data/parquet_rows.py": (f"{BOMBS}::test_a_page_of_parquet_stands_for_no_more_than_the_limit",),
    "edgefl/learn/data/images.py": (f"{BOMBS}::test_a_set_of_the_data_root_may_be_a_bomb_too",),
    "edgefl/learn/data/text.py": (f"{BOMBS}::test_a_set_of_the_data_root_may_be_a_bomb_too",),
    "edgefl/learn/models/torch_file.py": (
        f"{MODELS}::test_tensors_that_share_their_numbers_share_them_here",
        f"{MODELS}::test_a_state_dict_may_be_a_bomb",
    ),
    "edgefl/system/store.py": (
        f"{TEXTS}::test_a_checkpoint_may_be_a_bomb",
        f"{TEXTS}::test_a_model_of_another_program_may_claim_what_it_likes",
    ),
    "edgefl/system/record_log.py": (f"{TEXTS}::test_a_record_that_is_none_is_said_of_its_file",),
    "edgefl/system/json_text.py": (f"{TEXTS}::test_what_is_nested_too_deep_is_a_value_error_as_all_else",),
    "edgefl/job/config/reader.py": (f"{TEXTS}::test_a_configuration_may_be_a_bomb",),
    "coordinator/durable/run_table.py": ("test_every_reader.py::test_the_journal_of_a_run_may_hold_a_bomb",),
    "coordinator/durable/resuming.py": ("test_every_reader.py::test_the_journal_of_a_run_may_hold_a_bomb",),
    "edgefl/job/config/origin.py": ("test_every_reader.py::test_the_journal_of_a_run_may_hold_a_bomb",),
    "edgefl/ops/reporting.py": ("test_every_reader.py::test_the_journal_of_a_run_may_hold_a_bomb",),
    "edgefl/watch/metrics_file.py": ("test_every_reader.py::test_the_folder_of_a_run_may_hold_sparse_files",),
    "edgefl/fleet/tokens.py": (f"{TEXTS}::test_a_token_may_be_a_bomb",),
    "edgefl/fleet/claims.py": (
        f"{TEXTS}::test_a_claim_may_be_a_bomb",
        "fleet/test_claims.py::test_serial_numbers_come_from_a_file_of_two_columns",
    ),
    "edgefl/fleet/kit.py": ("test_every_reader.py::test_a_kit_may_be_a_bomb",),
    "edgefl/delivery/card.py": ("test_every_reader.py::test_the_card_of_a_model_may_be_a_bomb",),
    "edgefl/lab/api/folder.py": ("test_every_reader.py::test_the_folder_of_a_run_may_hold_a_bomb",),
    "edgefl/watch/page/history.py": ("test_every_reader.py::test_the_page_passes_over_a_run_whose_metrics_are_a_bomb",),
    "edgefl/sim/availability_trace.py": ("sim/test_availability_trace.py::test_a_trace_may_be_a_bomb",),
    # messages
    "edgefl/wire/frames.py": (
        "attacks/test_memory_and_amplification.py::test_a_bomb_inside_a_small_message_is_not_opened",
    ),
    "edgefl/wire/messages.py": ("test_every_reader.py::test_a_message_may_be_a_bomb",),
    "edgefl/learn/models/onnx/bundle.py": (
        "attacks/test_hostile_graphs.py::test_a_hostile_bundle_is_declined_by_its_code_and_the_agent_stays",
    ),
    "edgefl/watch/overview/snapshot.py": ("test_every_reader.py::test_an_overview_may_be_a_bomb",),
    "edgefl/ops/sources.py": ("test_every_reader.py::test_an_overview_may_be_a_bomb",),
    "edgefl/server/backup_file.py": (
        "server/test_backup.py::test_a_size_that_the_file_cannot_have_is_refused",
        "server/test_backup.py::test_lists_in_lists_are_no_description",
    ),
}
# What these read was written here, by this program, for this program, in a folder that only its user may write to. JSON
# of files goes through parse_json all the same: a damaged file is said to be so.
OURS: dict[str, str] = {
    "coordinator/durable/checkpoint.py": "turns its own values around",
    "coordinator/shell/known_runs.py": "the coordinator's folder; has a limit of size",
    "device_agent/box/channel.py": "between an agent and its box; has a limit of size",
    "device_agent/box/inside.py": "what the agent says to its box",
    "device_agent/durable/broker_addresses.py": "the device's folder",
    "device_agent/durable/failures.py": "the device's folder",
    "device_agent/durable/privacy_ledger.py": "the device's folder",
    "device_agent/durable/replay.py": "the device's folder; has a hash",
    "device_agent/shell/examination.py": "from its own process",
    "edgefl/lab/api/running.py": "notes of this process",
    "edgefl/lab/comparison/cache.py": "the results of a comparison",
    "edgefl/learn/data/table.py": "from its own process, which has a limit of memory",
    "edgefl/delivery/deploy.py": "graphs that were made here",
    "edgefl/delivery/quantise.py": "a model that was made here",
    "edgefl/ops/doctor/box.py": "from its own process",
    "edgefl/ops/doctor/engines.py": "from its own process",
    "edgefl/watch/exporters/progress_file.py": "the run's folder",
    "edgefl/watch/exporters/webhooks.py": "the run's folder",
    "edgefl/fleet/enrolment.py": "messages of 64 KiB at most, by pydantic or parse_json",
    "edgefl/fleet/late_renewal.py": "messages of 64 KiB at most, by pydantic or parse_json",
    "edgefl/fleet/claiming.py": "messages of 64 KiB at most, by pydantic or parse_json; the device's folder",
    "edgefl/fleet/audit.py": "the server's folder; the last 64 KiB, or by pydantic line by line",
    "edgefl/server/client.py": "answers of the server that the operator named; has a limit of size",
    "edgefl/server/folder.py": "the server's folder",
    "edgefl/server/people.py": "the server's folder; has a limit of size",
    "edgefl/server/run_progress.py": "the run's folder",
    "edgefl/fleet/folder.py": "the fleet's folder",
    "edgefl/fleet/members.py": "the fleet's folder; has a limit of size",
    "edgefl/fleet/last_seen.py": "the fleet's folder",
    "edgefl/fleet/site_broker.py": "the site's folder",
    "edgefl/fleet/sites.py": "has a limit of size; by pydantic or parse_json",
    "edgefl/lab/planning/costs.py": "comes with edgefl",
    "edgefl/sim/torch_process.py": "the order of its parent",
    "edgefl/sim/run_folder.py": "the run's folder",
}


def decoders(tree: ast.AST) -> Iterator[str]:
    """The decoders that a module calls, or imports by their name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("safetensors"):
            yield from ("safetensors" for alias in node.names if alias.name in {"load", "safe_open", "load_file"})
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            words = ast.unparse(node.func).split(".")
            yield from {words[-1], ".".join(words[-2:])} & DECODERS


def readers() -> set[str]:
    files = (file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
    names = {file.relative_to(ROOT).as_posix(): file for file in files}
    return {
        name
        for name, file in names.items()
        if not name.startswith(MEASURING) and any(decoders(ast.parse(file.read_text(encoding="utf-8"))))
    }


def test_every_reader_meets_a_bomb_or_reads_only_what_is_ours() -> None:
    assert readers() == FROM_OUTSIDE.keys() | OURS.keys(), "give a new reader a bomb, and take out one that is gone"
    assert not FROM_OUTSIDE.keys() & OURS.keys()


@pytest.mark.parametrize("reader", FROM_OUTSIDE)
def test_the_bomb_of_a_reader_is_there(reader: str) -> None:
    for place in FROM_OUTSIDE[reader]:
        file, _, name = place.partition("::")
        tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, place


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("import numpy as np\nx = np.load(path)", {"np.load"}),
        ("from zipfile import ZipFile\nwith ZipFile(path): pass", {"ZipFile"}),
        ("from safetensors.numpy import load as unpack\nunpack(raw)", {"safetensors"}),
        ("Kind.model_validate_json(path.read_bytes())", {"model_validate_json"}),
        ("reader.load(path)\npath.open()", set()),
    ],
)
def test_a_decoder_is_seen(text: str, seen: set[str]) -> None:
    assert set(decoders(ast.parse(text))) == seen


# ---- bombs that have no better place ---------------------------------------------------------------------------------

NESTED = ["[" * 100_000, '{"a":' * 100_000, "[" * 900 + "]" * 900, "9" * 5000]


@pytest.mark.parametrize("text", NESTED)
def test_a_kit_may_be_a_bomb(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.kit").write_text(text[: kit.LIMIT])
    with pytest.raises(ConfigError, match=r"a\.kit: "):
        kit.read(tmp_path / "a.kit")
    bombs.sparse(tmp_path / "b.kit")
    with pytest.raises(ConfigError, match="larger than 64 KiB"):
        kit.read(tmp_path / "b.kit")


@pytest.mark.parametrize("text", NESTED)
def test_the_card_of_a_model_may_be_a_bomb(text: str) -> None:
    with pytest.raises(ConfigError, match="the model's card"):
        card.rows({"rows": text})
    assert card.class_names({"class_names": text}) is None


@pytest.mark.parametrize("text", NESTED)
def test_the_folder_of_a_run_may_hold_a_bomb(text: str, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(text + "\n")
    with pytest.raises(ConfigError, match=r"metrics\.jsonl, line 1: not a line of a run's metrics"):
        load(tmp_path)


def test_the_folder_of_a_run_may_hold_sparse_files(tmp_path: Path) -> None:
    bombs.sparse(tmp_path / "metrics.jsonl")
    for reads in (lambda: load(tmp_path), lambda: MetricsReader(FolderDisk(tmp_path)).read_on()):
        with pytest.raises(StoreError, match=r"metrics\.jsonl: larger than 512 MB"):
            reads()
    (tmp_path / "metrics.jsonl").write_text("")
    bombs.sparse(tmp_path / "checkpoint-000001.safetensors")
    for reads in (lambda: load(tmp_path), lambda: read(tmp_path)):
        with pytest.raises(EdgeflError, match=r"checkpoint-000001\.safetensors: larger than 4096 MB"):
            reads()


@pytest.mark.parametrize("text", [*NESTED, "null", "3", '{"run": 3}', '{"run": {"name": [], "rounds": 1}}'])
def test_the_journal_of_a_run_may_hold_a_bomb(text: str, tmp_path: Path) -> None:
    disk = FolderDisk(tmp_path / "night")
    book = Journal(disk)
    book.set(run=text, software=text)
    for reads in (
        run_history.facts,
        lambda _: gather(tmp_path / "night"),
        lambda _: begun(tmp_path / "night", remedy=""),
    ):
        with pytest.raises(StoreError, match="its journal holds no run file"):
            reads(disk)
    for reads in (origin.from_json, RequestedRounds.from_json):
        with pytest.raises(StoreError, match="the journal's "):
            reads(text)
    table = parse(RunFile, {"rounds": {"cohort": 1, "quorum": 1}}, "run.toml", environment={})
    book.set(run=table.model_dump_json())
    assert gather(tmp_path / "night").software == {}


@pytest.mark.parametrize("text", NESTED)
def test_the_page_passes_over_a_run_whose_metrics_are_a_bomb(text: str, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "metrics.jsonl").write_text(text + "\n")
    assert isinstance(PastRuns(tmp_path).listed(), list)


@pytest.mark.parametrize("text", NESTED)
def test_a_message_may_be_a_bomb(text: str) -> None:
    with pytest.raises(WireError):
        read_json(Presence, text.encode())


@pytest.mark.parametrize("text", NESTED)
def test_an_overview_may_be_a_bomb(text: str) -> None:
    with pytest.raises(RemoteError, match="this is no overview of a run"):
        snapshot.read(text.encode(), "a page")


def test_a_model_that_is_larger_than_the_memory_for_it_is_not_read(tmp_path: Path) -> None:
    bombs.sparse(tmp_path / "a.onnx")
    with pytest.raises(ConfigError, match=r"refused, model\.too_large: .*a file of more than the 100 MB"):
        Deployed(tmp_path / "a.onnx", memory=100 << 20)
