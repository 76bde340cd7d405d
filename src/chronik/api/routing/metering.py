"""What is counted of each API: requests, bytes, how long they took, and the errors that were answered.

Every request passes here, so what is done for each is as little as can be: docs/metrics.md has the figure.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from time import perf_counter
from typing import Any, Final, NamedTuple

from chronik.exchange import Response as ResponseFrame
from chronik.meters import LATENCY_SECONDS, Histogram
from chronik.protocol.apis import FETCH_KEY, PRODUCE_KEY
from chronik.protocol.errors import ErrorCode
from chronik.protocol.schema import Field, Response, Struct

_SIZE: Final = struct.Struct(">i")


class ApiMeter:
    __slots__ = (
        "api_key",
        "at_once",
        "errors",
        "failures",
        "later",
        "received_bytes",
        "requests",
        "sent_bytes",
    )

    def __init__(self, api_key: int) -> None:
        self.api_key: Final = api_key
        self.requests = 0
        self.received_bytes = 0
        self.sent_bytes = 0
        self.at_once = Histogram()
        """Of requests that were answered in the turn of the loop in which they came."""
        self.later = Histogram()
        """Of those that waited: for a disk, for followers, for records, for other nodes."""
        self.errors: dict[int, int] = {}
        """How often each error code was answered; one answer may have many."""
        self.failures = 0
        """Requests whose handler broke: a bug, or a storage failure on its way to stop the node."""

    def answered(self, response: Any, frame: ResponseFrame, came: float, histogram: Histogram) -> None:
        """Counts a request that came at that time and is answered now, with its errors. All of it is spelled out: calls
        would cost as much as what they do."""
        seconds = perf_counter() - came
        histogram.counts[bisect_left(LATENCY_SECONDS, seconds)] += 1
        histogram.seconds += seconds
        if frame is None:
            return
        self.sent_bytes += len(frame[0]) if len(frame) == 1 else _SIZE.unpack_from(frame[0])[0] + _SIZE.size
        if self.api_key == FETCH_KEY:
            if not response.error_code and not _any_failed_fetch(response):
                return
        elif self.api_key == PRODUCE_KEY and not _any_failed_produce(response):
            return
        found: list[int] = []
        _collect(response, found)
        if found:
            self.count_errors(found)

    def answered_later(self, frame: ResponseFrame, came: float) -> None:
        """Counts one whose errors are counted by others."""
        self.later.add(perf_counter() - came)
        if frame is not None:
            self.sent_bytes += sum(map(len, frame))

    def count_errors(self, codes: list[int]) -> None:
        for code in codes:
            self.errors[code] = self.errors.get(code, 0) + 1


def _any_failed_fetch(response: Any) -> bool:
    for topic in response.responses:
        for partition in topic.partitions:
            if partition.error_code:
                return True
    return False


def _any_failed_produce(response: Any) -> bool:
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                return True
    return False


def errors_in(response: Struct | None) -> list[int]:
    """Returns every error code in a response, wherever it stands."""
    found: list[int] = []
    if response is not None:
        _collect(response, found)
    return found


def holds_more_than(response: Struct | None, elements_max: int) -> bool:
    """Return whether the arrays in it have more elements, those of nested arrays included."""
    return response is not None and _count(response, elements_max) > elements_max


def _count(part: Any, elements_max: int) -> int:
    shape = _SHAPES.get(type(part)) or _shape_of(type(part))
    count = 0
    for name in shape.arrays:
        value = getattr(part, name)
        if not value:
            continue
        count += len(value)
        if count > elements_max:
            return count
        for each in value:
            if isinstance(each, bytes):  # encoded already
                continue
            count += _count(each, elements_max - count)
            if count > elements_max:
                return count
    return count


def error_names(response: Response | None) -> list[str]:
    """Returns the names of the errors in it, each once."""
    return sorted({code_name(code) for code in errors_in(response)})


def code_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


class _Shape(NamedTuple):
    has_code: bool
    others: tuple[str, ...]
    """Fields in which there may be more of them."""
    arrays: tuple[str, ...]
    """Fields that are arrays of structs."""


_SHAPES: Final[dict[type, _Shape]] = {}


def _collect(part: Any, found: list[int]) -> None:
    shape = _SHAPES.get(type(part)) or _shape_of(type(part))
    if shape.has_code and part.error_code:
        found.append(part.error_code)
    for name in shape.others:
        value = getattr(part, name)
        if isinstance(value, list):
            for each in value:
                _collect(each, found)
        elif value is not None:
            _collect(value, found)


def _shape_of(kind: type) -> _Shape:
    fields: tuple[str, ...] = getattr(kind, "__struct_fields__", ())
    declared = {field.name: field for field in kind.__schema__.fields} if fields else {}  # type: ignore[attr-defined]
    others = tuple(name for name in fields if name in declared and _may_hold_codes(declared[name].element))
    arrays = tuple(name for name in fields if name in declared and is_array_of_structs(declared[name]))
    shape = _SHAPES[kind] = _Shape("error_code" in fields, others, arrays)
    return shape


def is_array_of_structs(field: Field) -> bool:
    return field.kind == "array" and isinstance(field.element, type)


def _may_hold_codes(element: object) -> bool:
    if not isinstance(element, type):
        return False
    shape = _SHAPES.get(element) or _shape_of(element)
    return shape.has_code or bool(shape.others)
