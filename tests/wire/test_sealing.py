"""What is sealed opens for one key, in one frame, once and as it was; and costs 48 bytes."""

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from edgefl.base.errors import WireError
from edgefl.wire import frames, sealing
from edgefl.wire.messages import Assignment
from edgefl.wire.sealing import Opener, sealed
from edgefl.wire.signing import Signer

SIGNER = Signer(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
OPENER = Opener(SIGNER)
BODY = np.arange(1000, dtype="<f4").tobytes()
PLAIN = frames.pack({"kind": "answer", "round": 7}, [BODY])


def opened(data: bytes, opener: Opener = OPENER, limit: int = len(BODY)) -> bytes:
    return bytes(frames.peek(data).body(limit, opener))


def refused(data: bytes, **more: object) -> str:
    with pytest.raises(WireError) as error:
        opened(data, **more)  # type: ignore[arg-type]
    return error.value.code


@pytest.mark.parametrize("compress", [False, True])
def test_what_was_sealed_opens_as_it_was(compress: bool) -> None:
    plain = frames.pack({"kind": "answer"}, [bytes(4000), BODY], compress=compress)
    closed = sealed(plain, OPENER.key)
    assert len(closed) == len(plain) + frames.SEAL
    assert opened(closed, limit=4000 + len(BODY)) == bytes(4000) + BODY
    assert frames.peek(closed).header == frames.peek(plain).header


def test_nothing_of_the_body_can_be_read_and_no_two_seals_are_alike() -> None:
    first, second = sealed(PLAIN, OPENER.key), sealed(PLAIN, OPENER.key)
    assert first != second
    assert not [at for at in range(0, len(BODY), 16) if BODY[at : at + 16] in first]


def test_the_same_entropy_makes_the_same_seal() -> None:
    assert sealed(PLAIN, OPENER.key, lambda size: b"\7" * size) == sealed(PLAIN, OPENER.key, lambda size: b"\7" * size)


def test_every_bit_counts_before_the_body_and_in_it() -> None:
    closed = sealed(PLAIN, OPENER.key)
    begin = len(closed) - len(BODY) - frames.SEAL
    for at in (6, 30, *range(begin, begin + 40), len(closed) - 1):  # lengths, header, key, body, tag
        changed = bytearray(closed)
        changed[at] ^= 1
        assert refused(bytes(changed)) in {"update.seal", "wire.malformed", "wire.truncated"}


def test_a_sealed_body_does_not_open_in_another_frame() -> None:
    closed, other = sealed(PLAIN, OPENER.key), sealed(frames.pack({"kind": "answer", "round": 8}, [BODY]), OPENER.key)
    size = len(BODY) + frames.SEAL
    assert refused(other[:-size] + closed[-size:]) == "update.seal"


def test_it_opens_for_no_other_key() -> None:
    assert refused(sealed(PLAIN, OPENER.key), opener=Opener(Signer.new())) == "update.seal"


def test_without_a_key_it_is_refused() -> None:
    with pytest.raises(WireError, match="no key here"):
        frames.peek(sealed(PLAIN, OPENER.key)).body(len(BODY))


def test_what_is_larger_than_it_may_be_is_refused_before_it_is_opened() -> None:
    closed = sealed(PLAIN, OPENER.key)
    assert refused(closed, limit=len(BODY) - 1) == "wire.too_large"
    assert refused(closed + b"\0") == "wire.malformed"
    assert refused(closed[:-1]) == "update.seal"


def test_a_seal_cut_short_anywhere_is_refused() -> None:
    closed = sealed(PLAIN, OPENER.key)
    begin = len(closed) - len(BODY) - frames.SEAL
    assert {refused(closed[: begin + size]) for size in range(64)} == {"update.seal"}


def test_the_key_follows_from_the_coordinators_own_and_does_not_give_it_away() -> None:
    assert Opener(SIGNER).key == "x25519:O9bAYKC6VPYibStgCfClLa_3gVvmsoq3c1wSmzZl8mc"
    assert OPENER.key.removeprefix(sealing.KIND) != SIGNER.key.removeprefix("ed25519:")


def test_a_key_that_makes_every_secret_the_same_is_refused() -> None:
    with pytest.raises(WireError, match="no key"):
        sealed(PLAIN, "x25519:" + "A" * 43)


def test_a_task_that_names_no_key_is_one_of_before() -> None:
    task = Assignment(job="j", run_id="r", round=1, attempt=1, model="m")
    assert task.seal is None
    assert Assignment.model_validate({**task.model_dump(), "seal": OPENER.key}).seal == OPENER.key
