"""JSON and TOML of others: whatever is wrong with a text is said, and none ends its reader or keeps it."""

from pathlib import Path

import bombs
import numpy as np
import pytest

from edgefl.base.errors import ConfigError, StoreError
from edgefl.fleet import claims, tokens
from edgefl.job.config import reader
from edgefl.job.config.agent_file import AgentFile
from edgefl.system import record_log, store
from edgefl.system.disk import FolderDisk
from edgefl.system.json_text import DEEPEST, nested, parse_json


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "[" * 100 + "]" * 100, '{"a":' * 900 + "1" + "}" * 900, "9" * 5000, "["]
)
def test_what_is_nested_too_deep_is_a_value_error_as_all_else(text: str) -> None:
    for given in (text, text.encode(), bytearray(text.encode()), memoryview(text.encode())):
        with pytest.raises(ValueError, match=r"nested|digits|Expecting"):
            parse_json(given)


def test_as_deep_as_allowed_is_read() -> None:
    text = "[" * DEEPEST + "]" * DEEPEST
    assert not nested(parse_json(text))
    assert parse_json('{"a": [1, {"b": null}]}') == {"a": [1, {"b": None}]}
    assert nested([[[]]], deepest=2)
    assert not nested([[[]]], deepest=3)


TOML = {
    "lists in lists": "a = " + "[" * 100_000,
    "tables in tables": "a = " + "{a = " * 50_000,
    "a hundred lists": "a = " + "[" * 100 + "]" * 100,
    "a key of many parts": "a." * 200_000 + "a = 1",
    "a quoted key of many parts": '"a" . ' * 100_000 + "a = 1",
    "a table of many parts": "[" + "a." * 200_000 + "a]",
    "a number of many digits": "a = " + "9" * 5000,
    "a long file": "# " + "x" * 2_000_000,
}
READ_TOML = """
import sys
from pathlib import Path
from edgefl.job.config.reader import read_toml
from edgefl.base.errors import ConfigError
try:
    read_toml(Path(sys.argv[1]))
except ConfigError as error:
    print(error)
"""


@pytest.mark.parametrize("kind", TOML)
def test_a_configuration_may_be_a_bomb(kind: str, tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(TOML[kind])
    done = bombs.run("-c", READ_TOML, str(tmp_path / "a.toml"))
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = done.stdout.splitlines()
    assert line.startswith(f"{tmp_path / 'a.toml'}: ")


def test_a_sparse_configuration_is_not_read_whole(tmp_path: Path) -> None:
    bombs.sparse(tmp_path / "a.toml")
    assert "so it is no configuration" in bombs.run("-c", READ_TOML, str(tmp_path / "a.toml")).stdout


def test_dots_in_a_text_are_no_parts_of_a_key(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("[data]\nsource = 'csv:" + "../" * 200 + "a.csv'\n")
    assert reader.load(AgentFile, tmp_path / "a.toml", environment={}).data.source.endswith("../a.csv")


def test_a_token_may_be_a_bomb() -> None:
    word = tokens.PREFIX + "W1tb" * 200  # [[[
    with pytest.raises(ConfigError, match="this is no token"):
        tokens.read(word)


def test_a_claim_may_be_a_bomb() -> None:
    for word in (claims.PREFIX + "W1tb" * 200, claims.PREFIX + "A" * 2000):
        with pytest.raises(ConfigError, match="this is no claim"):
            claims.read_word(word)


# ---- our own formats, made by somebody else --------------------------------------------------------------------------


def resealed(about: str) -> bytes:
    """A sealed file with this metadata, and the hash that belongs to it."""
    header = about.encode()
    header += b" " * (-len(header) % 8)
    raw = bytearray(len(header).to_bytes(8, "little") + header)
    raw[store._HASH] = store._hashed(raw).encode()
    return bytes(raw)


def about(told: str) -> str:
    """The metadata of a sealed file."""
    quoted = told.replace('"', '\\"')
    return '{"__metadata__":{"edgefl":"{\\"sha256\\": \\"' + "0" * 64 + '\\", ' + quoted + '}"}}'


SEALED = {
    "nested": about('"about": ' + "[" * 100_000),
    "words without about": about('"words": {}'),
    "words that are none": about('"about": {}, "words": 3'),
    "words that take gigabytes": about(
        '"about": {}, "words": {"a": ["' + "x" * 100_000 + '"' + ', ""' * 100_000 + "]}"
    ),
    "nested words that take gigabytes": about(
        '"about": {}, "words": {"a": [["' + "x" * 100_000 + '"' + ', ""' * 100_000 + "]]}"
    ),
    "a header of 70 MB": about('"about": [' + "{}," * 24_000_000 + '{}], "words": {}'),
}
LOAD = """
import sys
from pathlib import Path
from edgefl.base.errors import StoreError
from edgefl.system import store
try:
    store.load(Path(sys.argv[1]))
except StoreError as error:
    print(error)
"""


@pytest.mark.parametrize("kind", SEALED)
def test_a_checkpoint_may_be_a_bomb(kind: str, tmp_path: Path) -> None:
    raw = resealed(SEALED[kind])
    assert store.is_sealed(raw)
    (tmp_path / "a").write_bytes(raw)
    done = bombs.run("-c", LOAD, str(tmp_path / "a"))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{tmp_path / 'a'}: not one of our files (")


def test_a_model_of_another_program_may_claim_what_it_likes(tmp_path: Path) -> None:
    header = b'{"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,4611686018427387904]}}'
    with pytest.raises(StoreError, match="cannot be read as safetensors"):
        store.plain(len(header).to_bytes(8, "little") + header, "a.safetensors")
    bombs.sparse(tmp_path / "a.safetensors")
    with pytest.raises(StoreError, match="larger than 4096 MB"):
        store.read(tmp_path / "a.safetensors", store.LARGEST_MODEL)


def test_words_that_could_not_be_read_again_are_not_written() -> None:
    with pytest.raises(StoreError, match="the words 'a' take more than 64 MB"):
        store.sealed({"a": np.array(["x" * 100_000, *[""] * 200])}, {})


def test_a_record_that_is_none_is_said_of_its_file(tmp_path: Path) -> None:
    disk = FolderDisk(tmp_path)
    for note in (b"[" * 100_000, b"no JSON"):
        batch = record_log._SIZES.pack(len(note), 0) + note
        checksum = record_log._checksum(0, len(batch), [batch])
        head = record_log._HEAD.pack(record_log.MAGIC, len(batch), checksum, checksum)
        disk.write("log", head + batch)
        with pytest.raises(StoreError, match="damaged at byte 0, where no readable record begins"):
            list(record_log.RecordLog(disk, "log").read())
