"""Subjects of X.509 certificates as RFC 2253 text, formatted like Java's X500Principal. No I/O.

The module decodes DER up to the subject. OpenSSL has verified the certificate before, so malformed input is rare; it is
rejected nevertheless.
"""

from __future__ import annotations

from typing import Final


class InvalidSubject(Exception):
    """The subject of a certificate cannot be decoded."""


_SEQUENCE, _SET, _OID, _VERSION = 0x30, 0x31, 0x06, 0xA0

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
"""Attribute names by OID. An attribute with another OID is formatted as its OID and hexadecimal value."""

_ENCODINGS: Final = {
    12: "utf-8",
    19: "ascii",
    20: "latin-1",
    22: "ascii",
    27: "latin-1",
    28: "utf-32-be",
    30: "utf-16-be",
}
"""Text encodings of the ASN.1 string types by tag."""

_SPECIAL_CHARACTERS: Final = frozenset(',=+<>#;"\\')


def format_certificate_subject(certificate: bytes) -> str:
    """Return the subject of a certificate in DER format.

    Raises:
        InvalidSubject: The subject cannot be decoded.
    """
    try:
        return _format_name(_find_subject(memoryview(certificate)))
    except (IndexError, ValueError, UnicodeDecodeError) as error:
        raise InvalidSubject(f"the subject of the client certificate cannot be decoded: {error}") from None


def _find_subject(certificate: memoryview) -> memoryview:
    _, whole, _ = _parse_der_element(certificate)
    _, rest, _ = _parse_der_element(whole, _SEQUENCE)
    if rest[0] == _VERSION:
        _, _, rest = _parse_der_element(rest)
    for _ in range(4):  # serial number, signature algorithm, issuer, validity
        _, _, rest = _parse_der_element(rest)
    _, subject, _ = _parse_der_element(rest, _SEQUENCE)
    return subject


def _format_name(names: memoryview) -> str:
    found = []
    while names:
        _, alternatives, names = _parse_der_element(names, _SET)
        parts = []
        while alternatives:
            _, pair, alternatives = _parse_der_element(alternatives, _SEQUENCE)
            parts.append(_format_attribute(pair))
        found.append("+".join(parts))
    return ",".join(reversed(found))


def _format_attribute(pair: memoryview) -> str:
    _, numbers, encoded = _parse_der_element(pair, _OID)
    oid = _decode_oid(bytes(numbers))
    kind, value, _ = _parse_der_element(encoded)
    keyword = _KEYWORDS.get(oid)
    if keyword is None or kind not in _ENCODINGS:
        return f"{keyword or oid}=#{encoded.hex()}"
    return f"{keyword}={_escape_attribute_value(str(value, _ENCODINGS[kind]))}"


def _escape_attribute_value(text: str) -> str:
    shown = "".join("\\00" if each == "\0" else f"\\{each}" if each in _SPECIAL_CHARACTERS else each for each in text)
    inner = shown.strip(" \r")
    if inner == shown:
        return shown
    lead = len(shown) - len(shown.lstrip(" \r"))
    before, after = shown[:lead], shown[lead + len(inner) :]
    return "".join(f"\\{each}" for each in before) + inner + "".join(f"\\{each}" for each in after)


def _parse_der_element(data: memoryview, expected: int | None = None) -> tuple[int, memoryview, memoryview]:
    """Return the tag and content of the first DER element, and the rest of the data."""
    tag, size, start = data[0], data[1], 2
    if expected is not None and tag != expected:
        raise ValueError(f"tag {tag} instead of {expected}")
    if size & 0x80:
        start += size & 0x7F
        if not 2 < start <= 6:
            raise ValueError("invalid DER length")
        size = int.from_bytes(data[2:start], "big")
    end = start + size
    if end > len(data):
        raise ValueError("truncated DER element")
    return tag, data[start:end], data[end:]


def _decode_oid(encoded: bytes) -> str:
    numbers, number = [], 0
    for byte in encoded:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
