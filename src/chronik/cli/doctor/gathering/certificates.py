"""When certificates end, and whose they are, read from PEM by the few rules of DER that this takes: brokers have no
library for certificates but OpenSSL, and Python's `ssl` tells dates only of those that it has verified."""

from __future__ import annotations

import re
import ssl
from datetime import UTC, datetime
from typing import Final, NamedTuple

from chronik.cli.watching.facts import CertificateFacts

_CERTIFICATE: Final = re.compile(f"{ssl.PEM_HEADER}.*?{ssl.PEM_FOOTER}", re.DOTALL)

INTEGER, SEQUENCE, SET, UTC_TIME, GENERALIZED_TIME, EXPLICIT_0 = 0x02, 0x30, 0x31, 0x17, 0x18, 0xA0
COMMON_NAME: Final = bytes((0x55, 0x04, 0x03))


class NotACertificate(ValueError):
    """What stands there cannot be read as one."""


class _Element(NamedTuple):
    tag: int
    body: bytes


def certificates_in(pem: str, where: str) -> list[CertificateFacts]:
    """Raises NotACertificate."""
    return [_facts(ssl.PEM_cert_to_DER_cert(text), where) for text in _CERTIFICATE.findall(pem)]


def _facts(der: bytes, where: str) -> CertificateFacts:
    """Certificate: SEQUENCE of the signed part, whose fields are version [0] (or none), serial number, algorithm,
    issuer, validity, subject, …"""
    try:
        (whole,) = _elements(der)
        fields = _elements(_elements(whole.body)[0].body)
        if fields[0].tag == EXPLICIT_0:
            fields = fields[1:]
        _, _, _, validity, subject = fields[:5]
        _, end = _elements(validity.body)
        return CertificateFacts(where, _common_name(subject.body) or "nobody in particular", _time(end))
    except (ValueError, IndexError, UnicodeDecodeError) as error:
        raise NotACertificate(f"{where}: not a certificate: {error}") from None


def _elements(data: bytes) -> list[_Element]:
    found, position = [], 0
    while position < len(data):
        tag, length = data[position], data[position + 1]
        position += 2
        if length & 0x80:
            count = length & 0x7F
            length = int.from_bytes(data[position : position + count], "big")
            position += count
        if position + length > len(data):
            raise ValueError("it is cut off")
        found.append(_Element(tag, data[position : position + length]))
        position += length
    return found


def _common_name(subject: bytes) -> str:
    for part in _elements(subject):
        for pair in _elements(part.body):
            name, value = _elements(pair.body)
            if name.body == COMMON_NAME:
                return value.body.decode()
    return ""


def _time(element: _Element) -> float:
    """UTCTime has two digits of a year, of which 50 and above are of the last century."""
    text = element.body.decode("ascii").removesuffix("Z")
    if element.tag == UTC_TIME:
        text = ("19" if int(text[:2]) >= 50 else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp()
