"""A key is read the same, whether its file is as usual or not; what is no key of ours is none."""

import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization as ways
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from edgefl.wire import key_file

PLAIN = ways.NoEncryption()


def test_a_usual_file_holds_the_key_that_the_library_reads() -> None:
    for _ in range(20):
        pem = key_file.new_pem()
        signer, theirs = key_file.read(pem), ways.load_pem_private_key(pem, None)
        assert signer is not None
        assert isinstance(theirs, Ed25519PrivateKey)
        assert signer.secret() == theirs.private_bytes_raw()


@pytest.mark.parametrize("change", [lambda pem: pem.replace(b"\n", b"\r\n"), lambda pem: b"a word before\n" + pem])
def test_an_unusual_file_is_read_by_the_library(change) -> None:
    pem = key_file.new_pem()
    usual, unusual = key_file.read(pem), key_file.read(change(pem))
    assert usual is not None
    assert unusual is not None
    assert usual.secret() == unusual.secret()


def test_other_keys_and_those_with_a_password_are_none() -> None:
    other = ec.generate_private_key(ec.SECP256R1()).private_bytes(ways.Encoding.PEM, ways.PrivateFormat.PKCS8, PLAIN)
    closed = Ed25519PrivateKey.generate().private_bytes(
        ways.Encoding.PEM, ways.PrivateFormat.PKCS8, ways.BestAvailableEncryption(b"secret")
    )
    usual = key_file.new_pem()
    for pem in (other, closed, b"", usual[:-40], usual.replace(b"MC4CAQ", b"MC4CAR")):
        assert key_file.read(pem) is None


def test_a_usual_key_is_read_without_what_reads_all_kinds_of_keys(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(key_file.new_pem())
    asked = (
        "import sys, pathlib; from edgefl.wire import key_file;"
        f"assert key_file.read(pathlib.Path({str(tmp_path / 'key')!r}).read_bytes());"
        "print('cryptography.hazmat.primitives.serialization' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
