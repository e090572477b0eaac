"""From when until when a certificate of our own is valid.

`cryptography.x509` reads certificates too. It is not used: its 24 modules take 1.5 MB of an agent (38 MB before its
first run) that only wants two dates. Where they stand is fixed (RFC 5280, 4.1): behind an optional version, the serial
number, an algorithm and the issuer.
"""

import re
from base64 import b64decode
from datetime import datetime, timezone
from typing import NamedTuple

VERSION, UTC_TIME = 0xA0, 0x17  # tags; the other kind of time has the century too
CENTURY = 50  # two digits from here on are of the last one
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]+)-----END CERTIFICATE-----")


class Dates(NamedTuple):
    """Seconds since 1970."""

    begin: float
    end: float


def read(pem: bytes) -> Dates:
    """The dates of the first certificate in this file, whatever else is in it; ValueError if there is none."""
    match = _PEM.search(pem)
    if match is None:
        raise ValueError("no certificate in PEM")
    try:
        fields = _parts(_parts(_parts(b64decode(match[1]))[0].content)[0].content)
        validity = fields[4 if fields[0].tag == VERSION else 3]
        begin, end = (_seconds(time) for time in _parts(validity.content))
    except IndexError:
        raise ValueError("a certificate without dates") from None
    return Dates(begin, end)


class _Part(NamedTuple):
    tag: int
    content: bytes


def _parts(data: bytes) -> list[_Part]:
    """What stands one after another in DER: each a tag, how long it is, and its content."""
    parts, at = list[_Part](), 0
    while at < len(data):
        tag, size, begin = data[at], data[at + 1], at + 2
        if size & 0x80:  # the number of bytes that hold the length
            begin += size & 0x7F
            size = int.from_bytes(data[at + 2 : begin], "big")
        at = begin + size
        if at > len(data):
            raise ValueError("a certificate that ends too soon")
        parts.append(_Part(tag, data[begin:at]))
    return parts


def _seconds(time: _Part) -> float:
    digits = time.content.decode("ascii").removesuffix("Z")
    if time.tag == UTC_TIME:
        digits = ("19" if int(digits[:2]) >= CENTURY else "20") + digits
    year, rest = int(digits[:4]), digits[4:]
    month, day, hour, minute, second = (int(rest[i : i + 2]) for i in range(0, 10, 2))
    return datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc).timestamp()
