"""Check the files that a Mosquitto is about to read: from 2.1 on, one wrong line in an ACL ends a running broker."""

from collections.abc import Mapping

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from edgefl.fleet import mosquitto

ACCESS = {"read", "write", "readwrite", "deny"}


def refused(texts: Mapping[str, bytes]) -> str:
    """Return which of these files, by their names, a Mosquitto would refuse and why; "" if it takes all of them."""
    name = ""
    try:
        for name, data in texts.items():
            _check(name, data)
    except ValueError as error:
        return f"{name}: {error}"
    for certificate, key in _pairs(texts):
        if _differ(texts[certificate], texts[key]):
            return f"{certificate}: it belongs to another key than {key}"
    return ""


def _check(name: str, data: bytes) -> None:
    """Raise ValueError unless the file is what its name says."""
    match name:
        case mosquitto.ACL | mosquitto.COORDINATORS:
            _check_acl(data.decode())
        case mosquitto.CA | mosquitto.CERTIFICATE | mosquitto.BRIDGE_CERTIFICATE:
            x509.load_pem_x509_certificates(data)
        case mosquitto.KEY | mosquitto.BRIDGE_KEY:
            load_pem_private_key(data, None)
        case mosquitto.REVOKED:
            x509.load_pem_x509_crl(data)


def _check_acl(text: str) -> None:
    """Raise ValueError for the first line that is neither `user NAME` nor `topic ACCESS FILTER`."""
    for number, line in enumerate(text.split("\n"), start=1):
        match line.split(" "):
            case [""]:
                pass
            case ["user", name] if name.isprintable() and name:
                pass
            case ["topic", access, topic] if access in ACCESS and _is_filter(topic):
                pass
            case _:
                raise ValueError(f"line {number} is no line of an ACL: {line[:100]!r}")


def _is_filter(topic: str) -> bool:
    """Return whether MQTT knows such a filter: a wildcard fills its level, and `#` is the last one."""
    levels = topic.split("/")
    whole = all(level in {"+", "#"} or not {"+", "#"} & set(level) for level in levels)
    return topic.isprintable() and bool(topic) and whole and "#" not in levels[:-1]


def _pairs(texts: Mapping[str, bytes]) -> list[tuple[str, str]]:
    """Return the certificates and keys that are there together."""
    pairs = ((mosquitto.CERTIFICATE, mosquitto.KEY), (mosquitto.BRIDGE_CERTIFICATE, mosquitto.BRIDGE_KEY))
    return [(certificate, key) for certificate, key in pairs if certificate in texts and key in texts]


def _differ(certificate: bytes, key: bytes) -> bool:
    """Return whether the certificate is one for another key."""
    ours = load_pem_private_key(key, None).public_key()
    theirs = x509.load_pem_x509_certificates(certificate)[0].public_key()
    as_bytes = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    return ours.public_bytes(*as_bytes) != theirs.public_bytes(*as_bytes)
