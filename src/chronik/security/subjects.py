"""The subject of a certificate as Kafka prints it: by RFC 2253, as Java's X500Principal does. Pure.

Reads DER as far as the subject. OpenSSL has checked the certificate before, so what does not fit is hardly ever met; it
is refused all the same.
"""

from __future__ import annotations

from typing import Final


class BadSubject(Exception):
    """The certificate's subject cannot be read."""


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
"""Others go by their numbers, and their values as bytes."""

_ENCODINGS: Final = {
    12: "utf-8",
    19: "ascii",
    20: "latin-1",
    22: "ascii",
    27: "latin-1",
    28: "utf-32-be",
    30: "utf-16-be",
}
"""How each kind of string is written."""

_ESCAPED: Final = frozenset(',=+<>#;"\\')


def subject_of(certificate: bytes) -> str:
    """Takes a certificate in DER. Raises BadSubject."""
    try:
        return _named(_subject(memoryview(certificate)))
    except (IndexError, ValueError, UnicodeDecodeError) as error:
        raise BadSubject(f"the subject of its certificate cannot be read: {error}") from None


def _subject(certificate: memoryview) -> memoryview:
    _, whole, _ = _element(certificate)
    _, rest, _ = _element(whole, _SEQUENCE)
    if rest[0] == _VERSION:
        _, _, rest = _element(rest)
    for _ in range(4):  # its number, the algorithm, who has signed it, and until when it is valid
        _, _, rest = _element(rest)
    _, subject, _ = _element(rest, _SEQUENCE)
    return subject


def _named(names: memoryview) -> str:
    found = []
    while names:
        _, alternatives, names = _element(names, _SET)
        parts = []
        while alternatives:
            _, pair, alternatives = _element(alternatives, _SEQUENCE)
            parts.append(_shown(pair))
        found.append("+".join(parts))
    return ",".join(reversed(found))


def _shown(pair: memoryview) -> str:
    _, numbers, encoded = _element(pair, _OID)
    oid = _dotted(bytes(numbers))
    kind, value, _ = _element(encoded)
    keyword = _KEYWORDS.get(oid)
    if keyword is None or kind not in _ENCODINGS:
        return f"{keyword or oid}=#{encoded.hex()}"
    return f"{keyword}={_escaped(str(value, _ENCODINGS[kind]))}"


def _escaped(text: str) -> str:
    shown = "".join("\\00" if each == "\0" else f"\\{each}" if each in _ESCAPED else each for each in text)
    inner = shown.strip(" \r")
    if inner == shown:
        return shown
    lead = len(shown) - len(shown.lstrip(" \r"))
    before, after = shown[:lead], shown[lead + len(inner) :]
    return "".join(f"\\{each}" for each in before) + inner + "".join(f"\\{each}" for each in after)


def _element(data: memoryview, expected: int | None = None) -> tuple[int, memoryview, memoryview]:
    """Returns the first element's tag and content, and what follows it."""
    tag, size, start = data[0], data[1], 2
    if expected is not None and tag != expected:
        raise ValueError(f"tag {tag} instead of {expected}")
    if size & 0x80:
        start += size & 0x7F
        if not 2 < start <= 6:
            raise ValueError("a length of no or too many bytes")
        size = int.from_bytes(data[2:start], "big")
    end = start + size
    if end > len(data):
        raise ValueError("it ends too soon")
    return tag, data[start:end], data[end:]


def _dotted(encoded: bytes) -> str:
    numbers, number = [], 0
    for byte in encoded:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
