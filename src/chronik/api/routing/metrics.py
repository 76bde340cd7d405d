"""Metrics of each API: requests, bytes, latencies and error codes.

Every request is counted here, so the code avoids all overhead.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from time import perf_counter
from typing import Any, Final, NamedTuple

from chronik.histogram import LATENCY_SECONDS, Histogram
from chronik.protocol.apis import FETCH_KEY, PRODUCE_KEY
from chronik.protocol.errors import ErrorCode
from chronik.protocol.schema import Field, Response, Struct
from chronik.request_reply import ResponseFrame as ResponseFrame

_SIZE: Final = struct.Struct(">i")


class ApiMeter:
    """Counters and latency histograms of one API."""

    __slots__ = (
        "api_key",
        "deferred",
        "errors",
        "failures",
        "immediate",
        "received_bytes",
        "requests",
        "sent_bytes",
    )

    def __init__(self, api_key: int) -> None:
        self.api_key: Final = api_key
        self.requests = 0
        self.received_bytes = 0
        self.sent_bytes = 0
        self.immediate = Histogram()
        """Latencies of requests that were answered in the event-loop iteration in which they arrived."""
        self.deferred = Histogram()
        """Latencies of requests that waited for a disk, followers, records or other nodes."""
        self.errors: dict[int, int] = {}
        """Number of responses by error code. One response may contain several error codes."""
        self.failures = 0
        """Number of requests whose handler raised an unexpected exception.

        The cause is a bug, or a storage failure that stops the node.
        """

    def record_response(self, response: Any, frame: ResponseFrame, received_at: float, histogram: Histogram) -> None:
        """Record the latency, response size and error codes of an answered request.

        The code is inlined, because function calls would cost as much as the counting itself.
        """
        seconds = perf_counter() - received_at
        histogram.counts[bisect_left(LATENCY_SECONDS, seconds)] += 1
        histogram.total_seconds += seconds
        if frame is None:
            return
        self.sent_bytes += len(frame[0]) if len(frame) == 1 else _SIZE.unpack_from(frame[0])[0] + _SIZE.size
        if self.api_key == FETCH_KEY:
            if not response.error_code and not _has_fetch_error(response):
                return
        elif self.api_key == PRODUCE_KEY and not _has_produce_error(response):
            return
        error_codes: list[int] = []
        _collect_error_codes(response, error_codes)
        if error_codes:
            self.count_errors(error_codes)

    def record_deferred_response(self, frame: ResponseFrame, received_at: float) -> None:
        """Record the latency and size of a deferred response. The caller counts its error codes."""
        self.deferred.record(perf_counter() - received_at)
        if frame is not None:
            self.sent_bytes += sum(map(len, frame))

    def count_errors(self, codes: list[int]) -> None:
        for code in codes:
            self.errors[code] = self.errors.get(code, 0) + 1


def _has_fetch_error(response: Any) -> bool:
    for topic in response.responses:
        for partition in topic.partitions:
            if partition.error_code:
                return True
    return False


def _has_produce_error(response: Any) -> bool:
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                return True
    return False


def find_error_codes(response: Struct | None) -> list[int]:
    """Return all non-zero error codes in a response, at any depth."""
    error_codes: list[int] = []
    if response is not None:
        _collect_error_codes(response, error_codes)
    return error_codes


def has_more_elements_than(response: Struct | None, elements_max: int) -> bool:
    """Return whether a response's arrays contain more elements than the limit, including nested arrays."""
    return response is not None and _count_elements(response, elements_max) > elements_max


def _count_elements(part: Any, elements_max: int) -> int:
    shape = _SHAPES.get(type(part)) or _build_message_shape(type(part))
    count = 0
    for name in shape.arrays:
        value = getattr(part, name)
        if not value:
            continue
        count += len(value)
        if count > elements_max:
            return count
        for each in value:
            if isinstance(each, bytes):  # already encoded
                continue
            count += _count_elements(each, elements_max - count)
            if count > elements_max:
                return count
    return count


def list_error_names(response: Response | None) -> list[str]:
    """Return the sorted, distinct names of the errors in a response."""
    return sorted({get_error_name(code) for code in find_error_codes(response)})


def get_error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


class _MessageShape(NamedTuple):
    """The fields of a protocol message type that contain error codes or arrays, for fast traversal."""

    has_error_code: bool
    nested: tuple[str, ...]
    """Names of the fields whose structs may contain error codes."""
    arrays: tuple[str, ...]
    """Fields that are arrays of structs."""


_SHAPES: Final[dict[type, _MessageShape]] = {}


def _collect_error_codes(part: Any, error_codes: list[int]) -> None:
    shape = _SHAPES.get(type(part)) or _build_message_shape(type(part))
    if shape.has_error_code and part.error_code:
        error_codes.append(part.error_code)
    for name in shape.nested:
        value = getattr(part, name)
        if isinstance(value, list):
            for each in value:
                _collect_error_codes(each, error_codes)
        elif value is not None:
            _collect_error_codes(value, error_codes)


def _build_message_shape(kind: type) -> _MessageShape:
    fields: tuple[str, ...] = getattr(kind, "__struct_fields__", ())
    declared = {field.name: field for field in kind.__schema__.fields} if fields else {}  # type: ignore[attr-defined]
    nested = tuple(name for name in fields if name in declared and _may_contain_error_codes(declared[name].element))
    arrays = tuple(name for name in fields if name in declared and is_array_of_structs(declared[name]))
    shape = _SHAPES[kind] = _MessageShape("error_code" in fields, nested, arrays)
    return shape


def is_array_of_structs(field: Field) -> bool:
    return field.kind == "array" and isinstance(field.element, type)


def _may_contain_error_codes(element: object) -> bool:
    if not isinstance(element, type):
        return False
    shape = _SHAPES.get(element) or _build_message_shape(element)
    return shape.has_error_code or bool(shape.nested)
