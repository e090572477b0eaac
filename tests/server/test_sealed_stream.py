"""What is sealed for a key opens with that key, whole and unchanged, or not at all."""

from io import BytesIO

import pytest

from edgefl.base.errors import ConfigError, StoreError
from edgefl.server import sealed_stream
from edgefl.server.sealed_stream import MAGIC, PIECE, TAG, SealedReader, SealedWriter

HEAD = len(MAGIC) + 64


@pytest.fixture
def keys(tmp_path):
    public = sealed_stream.make_key(tmp_path / "key")
    return sealed_stream.read_public(public), sealed_stream.read_secret(tmp_path / "key")


def sealed(data, public):
    file = BytesIO()
    writer = SealedWriter(file, public)
    for start in range(0, len(data), 300_000):
        writer.write(data[start : start + 300_000])
    writer.close()
    return file.getvalue()


def opened(raw, secret):
    reader = SealedReader(BytesIO(raw), secret, "out.tar")
    return b"".join(iter(lambda: reader.read(123_456), b""))


@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE])
def test_what_is_sealed_opens_again(keys, size):
    data = bytes(number % 251 for number in range(size))
    raw = sealed(data, keys[0])
    assert opened(raw, keys[1]) == data
    assert not data or data[:64] not in raw or size == 1


def test_another_key_is_told_which_one_it_should_be(keys, tmp_path):
    sealed_stream.make_key(tmp_path / "other")
    with pytest.raises(ConfigError, match=r"sealed for x25519:\S+, and this key is x25519:\S+; name the other key"):
        opened(sealed(b"secret", keys[0]), sealed_stream.read_secret(tmp_path / "other"))


@pytest.mark.parametrize("end", [10, HEAD, HEAD + 5, HEAD + PIECE + TAG, -1])
def test_a_file_that_was_cut_off_is_refused(keys, end):
    raw = sealed(bytes(PIECE + 100), keys[0])
    with pytest.raises(StoreError, match="take another copy"):
        opened(raw[:end], keys[1])


def test_pieces_cannot_be_changed_or_change_places(keys):
    raw = sealed(bytes(3 * PIECE), keys[0])
    head, pieces = raw[:HEAD], [raw[at : at + PIECE + TAG] for at in range(HEAD, len(raw), PIECE + TAG)]
    for other in (
        head + pieces[1] + pieces[0] + pieces[2],
        head + pieces[0] + pieces[2],
        head + pieces[0] + pieces[1][:-1] + bytes([pieces[1][-1] ^ 1]) + pieces[2],
        head + b"".join(pieces) + pieces[2],
    ):
        with pytest.raises(StoreError, match="was changed"):
            opened(other, keys[1])


def test_a_key_is_never_written_over_and_its_secret_half_is_private(tmp_path):
    sealed_stream.make_key(tmp_path / "key")
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    with pytest.raises(ConfigError, match="is there already"):
        sealed_stream.make_key(tmp_path / "key")


def test_a_file_that_is_no_key_is_named(tmp_path, keys):
    (tmp_path / "text").write_text("x25519:short")
    with pytest.raises(ConfigError, match="no public key of a back-up"):
        sealed_stream.read_public(tmp_path / "text")
    with pytest.raises(ConfigError, match=r"no secret key of a back-up; name the file without \.pub"):
        sealed_stream.read_secret(tmp_path / "key.pub")
    with pytest.raises(ConfigError, match="cannot be read"):
        sealed_stream.read_public(tmp_path / "missing")
    with pytest.raises(ConfigError, match="no key that anything can be sealed for"):
        SealedWriter(BytesIO(), bytes(32))
