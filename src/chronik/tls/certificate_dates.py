"""Subjects and expiry times of certificates in PEM texts.

Certificates are read with a minimal DER parser: brokers have no library for certificates except OpenSSL, and Python's
`ssl` returns dates of verified certificates only.
"""

from __future__ import annotations

import re
import ssl
from datetime import UTC, datetime
from typing import Final, NamedTuple

_CERTIFICATE: Final = re.compile(f"{ssl.PEM_HEADER}.*?{ssl.PEM_FOOTER}", re.DOTALL)

INTEGER, SEQUENCE, SET, UTC_TIME, GENERALIZED_TIME, EXPLICIT_0 = 0x02, 0x30, 0x31, 0x17, 0x18, 0xA0
COMMON_NAME: Final = bytes((0x55, 0x04, 0x03))


class InvalidCertificate(ValueError):
    """An error for a text that is not a valid PEM certificate."""


class _DerElement(NamedTuple):
    tag: int
    body: bytes


class CertificateDates(NamedTuple):
    """The common name of a certificate's subject, and its expiry time in seconds since the epoch."""

    subject: str
    not_after_s: float


def parse_pem_certificates(pem: str, where: str) -> list[CertificateDates]:
    """Parse all certificates in a PEM text; raise InvalidCertificate, which names `where`, if one is malformed."""
    return [_parse_certificate(ssl.PEM_cert_to_DER_cert(text), where) for text in _CERTIFICATE.findall(pem)]


def _parse_certificate(der: bytes, where: str) -> CertificateDates:
    """Return the subject and the expiry time of a DER-encoded certificate.

    A certificate is a SEQUENCE whose first element has the fields version [0] (optional), serial number, algorithm,
    issuer, validity, subject, …
    """
    try:
        (whole,) = _parse_elements(der)
        fields = _parse_elements(_parse_elements(whole.body)[0].body)
        if fields[0].tag == EXPLICIT_0:
            fields = fields[1:]
        _, _, _, validity, subject = fields[:5]
        _, end = _parse_elements(validity.body)
        return CertificateDates(_find_common_name(subject.body) or "(no common name)", _parse_time(end))
    except (ValueError, IndexError, UnicodeDecodeError) as error:
        raise InvalidCertificate(f"{where}: not a valid certificate: {error}") from None


def _parse_elements(data: bytes) -> list[_DerElement]:
    found, position = [], 0
    while position < len(data):
        tag, length = data[position], data[position + 1]
        position += 2
        if length & 0x80:
            count = length & 0x7F
            length = int.from_bytes(data[position : position + count], "big")
            position += count
        if position + length > len(data):
            raise ValueError("truncated")
        found.append(_DerElement(tag, data[position : position + length]))
        position += length
    return found


def _find_common_name(subject: bytes) -> str:
    for part in _parse_elements(subject):
        for pair in _parse_elements(part.body):
            name, value = _parse_elements(pair.body)
            if name.body == COMMON_NAME:
                return value.body.decode()
    return ""


def _parse_time(element: _DerElement) -> float:
    """Parse an ASN.1 time into a timestamp. In UTCTime, the two-digit years 50 to 99 belong to the 20th century."""
    text = element.body.decode("ascii").removesuffix("Z")
    if element.tag == UTC_TIME:
        text = ("19" if int(text[:2]) >= 50 else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp()
