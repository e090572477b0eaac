"""A signature holds for the very bytes that were signed, and for nothing else."""

import json
import subprocess
import sys
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from edgefl.base.errors import WireError
from edgefl.base.vector import Layout
from edgefl.wire import signing
from edgefl.wire.messages import Manifest, Shape, read_json
from edgefl.wire.signing import Signer

SIGNER = Signer(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
MANIFEST = Manifest(
    job="digits",
    run_id="a1b2",
    round=3,
    digest="0f" * 32,
    size=4096,
    layout=Shape.of(Layout(("w",), ((2, 2),))),
    algorithm={"name": "fedprox", "lr": 0.1},
    network="softmax",
    sample=(2,),
    classes=2,
    loss="cross_entropy",
    codec="float32",
    seed=7,
)
STATEMENT = MANIFEST.model_dump_json().encode()
SIGNED = SIGNER.sign(STATEMENT)


def refusal(payload: bytes) -> str:
    with pytest.raises(WireError) as refused:
        signing.claim(payload).prove()
    return refused.value.code


def test_what_was_signed_is_believed_and_says_who_signed_it():
    claim = signing.claim(SIGNED)
    claim.prove()
    assert (claim.statement, claim.key) == (STATEMENT, SIGNER.key)


def test_a_signed_manifest_is_still_one_json_object_with_two_members_more():
    manifest: dict[str, Any] = json.loads(SIGNED)
    assert list(manifest)[-2:] == ["key", "signature"]
    assert read_json(Manifest, SIGNED) == MANIFEST


def test_the_form_on_the_wire_is_written_in_stone():
    """Another program that speaks our protocol must come to the same bytes: Ed25519 has one signature per message."""
    assert SIGNER.key == "ed25519:A6EHv_POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg"
    assert SIGNER.sign(b'{"a":1}') == (
        b'{"a":1,"key":"ed25519:A6EHv_POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg",'
        b'"signature":"sRCMphQN1IjsHQm0-XHLefQ1NcIUevEzFfK46YQ5StsKn_Ra-KIVyEDdj6R0j1E8vXrnTrcoXhjubaeUbDYYBw"}'
    )


@given(st.integers(0, len(SIGNED) - 1), st.integers(1, 255))
def test_no_byte_can_be_changed(index: int, change: int):
    forged = bytearray(SIGNED)
    forged[index] ^= change
    assert refusal(bytes(forged)) in {"model.unsigned", "model.signature"}


@given(st.integers(0, len(SIGNED) - 1), st.binary(max_size=3))
def test_nothing_can_be_cut_out_or_put_in(index: int, extra: bytes):
    for forged in (SIGNED[:index], SIGNED[:index] + SIGNED[index + 1 :], SIGNED[:index] + extra + SIGNED[index:]):
        if forged != SIGNED:
            assert refusal(forged) in {"model.unsigned", "model.signature"}


@given(st.binary(max_size=400))
def test_no_bytes_at_all_are_more_than_refused(payload: bytes):
    assert refusal(payload) == "model.unsigned"


def test_without_a_signature_it_is_unsigned():
    assert refusal(STATEMENT) == "model.unsigned"


def test_a_signature_of_another_key_under_our_name_does_not_hold():
    other = Signer.new()
    assert refusal(other.sign(STATEMENT).replace(other.key.encode(), SIGNER.key.encode())) == "model.signature"


def test_a_signature_made_for_something_else_does_not_hold():
    """The same key, the same bytes, but without our prefix."""
    bare = signing.base64_text(SIGNER._key.sign(STATEMENT))
    tail = f',"key":"{SIGNER.key}","signature":"{bare}"}}'.encode()
    assert refusal(STATEMENT[:-1] + tail) == "model.signature"


def test_a_key_that_is_no_point_of_the_curve_is_refused():
    nonsense = signing.KIND + signing.base64_text(b"\x02" + bytes(30) + b"\x7f")
    assert refusal(SIGNED.replace(SIGNER.key.encode(), nonsense.encode())) == "model.signature"


@pytest.mark.parametrize(
    "key", ["", "ed25519:", "ed25519:abc", "rsa:" + "A" * 43, SIGNER.key + "=", SIGNER.key[:-1] + "h"]
)
def test_a_key_has_one_way_to_be_written(key: str):
    with pytest.raises(ValueError, match=r"ed25519:|base64url"):
        signing.key_bytes(key)


def test_cryptography_is_not_imported_before_a_key_is_used():
    code = "import sys, device_agent.start, edgefl.cli.app; print('cryptography' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
