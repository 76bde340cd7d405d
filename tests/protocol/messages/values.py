"""Messages with generated values, derived from our declarations and a seed."""

from __future__ import annotations

import random
from itertools import groupby
from typing import Any, Final, NamedTuple, TypeVar

from chronik.protocol.apis import APIS
from chronik.protocol.codec import REQUESTS, RESPONSES
from chronik.protocol.schema import Field, Struct

M = TypeVar("M", bound=Struct)
V = TypeVar("V", bool, int, float, str, bytes)

# Each style fills a whole message. "mixed" is used several times with different seeds.
STYLES: Final = ("default", "empty", "lowest", "highest", "large", "mixed", "mixed", "mixed", "mixed", "mixed")

_INTEGERS: Final = {f"int{bits}": (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) for bits in (8, 16, 32, 64)} | {
    "uint16": (0, (1 << 16) - 1)
}
_LETTERS: Final = "abcxyz-._ äß€𝄞"
_LARGE_BYTES: Final = 70_000  # larger than 16 bits and than what is copied into a frame
_LARGE_COUNT: Final = 140  # a varint of two bytes

# kio represents these as dates, durations and error enums, and so supports fewer values than the wire format.
_DATES: Final = {"log_append_time_ms": -1, "transaction_start_time_ms": 0}
"""Fields with the smallest value that kio supports."""
_DURATIONS: Final = ("retention_time_ms", "session_lifetime_ms")
_ERROR_CODE_MAX: Final = 100


def generate(cls: type[M], version: int, style: str, seed: object) -> M:
    return _Generator(version, style, random.Random(f"{seed}")).struct(cls, 0)


class _Generator:
    def __init__(self, version: int, style: str, rng: random.Random) -> None:
        self._version = version
        self._style = style
        self._rng = rng

    def struct(self, cls: type[M], depth: int) -> M:
        plain, tagged = cls.__schema__.get_fields_of_version(self._version)
        return cls(**{field.name: self._field(field, depth) for field in plain + tagged})

    def _field(self, field: Field, depth: int) -> Any:
        if self._keeps_default(field):
            return list(field.default) if isinstance(field.default, list) else field.default
        # A null in a tagged field is its default: codecs omit it, and some oracles reject it.
        if field.nullable.covers(self._version) and field.tag is None and self._is_null():
            return None
        if field.kind == "array":
            return [self._element(field, field.element, depth + 1) for _ in range(self._count(depth))]
        return self._element(field, field.element if field.kind == "struct" else field.kind, depth)

    def _keeps_default(self, field: Field) -> bool:
        if self._style == "mixed" and field.tag is not None:
            return self._rng.random() < 0.5
        return self._style == "default"

    def _is_null(self) -> bool:
        return self._style == "empty" or (self._style == "mixed" and self._rng.random() < 0.3)

    def _count(self, depth: int) -> int:
        if self._style == "large":
            return _LARGE_COUNT if depth == 0 else 1
        drawn = self._rng.choice((0, 1, 2, 3, 40 if depth else 3))
        return {"empty": 0, "lowest": 1, "highest": 2}.get(self._style, drawn)

    def _element(self, field: Field, kind: str | type[Struct] | None, depth: int) -> Any:
        if isinstance(kind, type):
            return self.struct(kind, depth + 1)
        if kind == "bool":
            return self._pick(False, True, self._rng.random() < 0.5)
        if kind == "string":
            return self._text()
        if kind == "float64":
            return self._pick(0.0, -1e308, self._rng.uniform(-1e9, 1e9))
        if kind == "uuid":
            return self._pick(bytes(16), b"\xff" * 16, self._rng.randbytes(16))
        if kind in ("bytes", "records"):
            size = _LARGE_BYTES if self._style == "large" and depth < 4 else self._rng.randrange(300)
            return self._pick(b"", b"\xff\0", self._rng.randbytes(size))
        return self._integer(field, str(kind))

    def _integer(self, field: Field, kind: str) -> int:
        if field.name == "error_code" or field.name.endswith("_error_code"):
            return self._pick(0, _ERROR_CODE_MAX, self._rng.randint(-1, _ERROR_CODE_MAX))
        if field.name in _DATES:
            return self._pick(_DATES[field.name], 253_402_300_000_000, self._rng.randrange(2_000_000_000) * 1000)
        if field.name in _DURATIONS:
            return self._pick(0, 2**40, self._rng.randrange(2**40))
        low, high = _INTEGERS[kind]
        drawn = self._rng.choice((0, max(-1, low), 1, 300 % (high + 1), self._rng.randint(low, high)))
        return self._pick(low, high, drawn)

    def _text(self) -> str:
        length = 300 if self._style == "large" else self._rng.choice((0, 1, 5, 20, 126, 127))
        return self._pick("", "é" * 200, "".join(self._rng.choices(_LETTERS, k=length)))

    def _pick(self, low: V, high: V, other: V) -> V:
        """Return the extreme that the style requires, or the random value."""
        return {"empty": low, "lowest": low, "highest": high}.get(self._style, other)


class MessageVersion(NamedTuple):
    cls: type[Struct]
    version: int

    def __str__(self) -> str:
        return f"{self.cls.__name__}-v{self.version}"


MESSAGE_VERSIONS: Final = [
    MessageVersion(cls, version)
    for api in APIS.values()
    for cls in (REQUESTS[api.key], RESPONSES[api.key])
    for version in range(api.min_version, api.max_version + 1)
]

BY_MESSAGE: Final = [list(pairs) for _, pairs in groupby(MESSAGE_VERSIONS, key=lambda pair: pair.cls)]


def format_versions(pairs: list[MessageVersion]) -> str:
    return pairs[0].cls.__name__
