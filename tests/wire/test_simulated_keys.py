import pytest

from edgefl.base.errors import WireError
from edgefl.wire import signed, signing, simulated_keys
from edgefl.wire.signed import SigningContext, Speaker
from edgefl.wire.signing import Signer


def test_a_simulated_key_signs_what_a_real_one_would_and_follows_from_its_name():
    assert simulated_keys.signer(1, "pi").key == simulated_keys.signer(1, "pi").key
    assert simulated_keys.signer(1, "pi").key != simulated_keys.signer(2, "pi").key
    signer = simulated_keys.signer(1, "pi")
    signing.claim(signer.sign(b'{"a":1}')).prove()
    signed.opened(Speaker(signer, "f", 1).seal("presence", b"here", device="pi")).prove(
        SigningContext("presence", "f", device="pi")
    )


def test_what_it_did_not_sign_is_refused():
    one, other = simulated_keys.signer(1, "one"), simulated_keys.signer(1, "other")
    key = signing.key_bytes(one.key)
    assert signing.verified(key, one.signature(b"yes"), b"yes")
    assert not signing.verified(key, one.signature(b"yes"), b"no")
    assert not signing.verified(key, other.signature(b"yes"), b"yes")
    changed = one.sign(b'{"a":1}').replace(b'"a":1', b'"a":2')
    with pytest.raises(WireError, match="is not what"):
        signing.claim(changed).prove()


def test_a_real_key_is_never_checked_as_a_simulated_one():
    real, simulated = Signer.new(), simulated_keys.signer(1, "pi")
    assert signing.key_bytes(real.key) not in signing.SIMULATED
    assert not signing.verified(signing.key_bytes(real.key), simulated.signature(b"x"), b"x")
    assert signing.verified(signing.key_bytes(real.key), real.signature(b"x"), b"x")
