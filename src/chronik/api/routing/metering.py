"""What is counted of each API: requests, bytes, how long they took, and the errors that were answered.

Every request passes here, so what is done for each is as little as can be: docs/metrics.md has the figure.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from time import perf_counter
from typing import Any, Final, NamedTuple

from chronik.exchange import Response as ResponseFrame
from chronik.meters import LATENCY_SECONDS, Histogram
from chronik.protocol.apis import FETCH_KEY, PRODUCE_KEY
from chronik.protocol.errors import ErrorCode
from chronik.protocol.schema import Response


class ApiMeter:
    __slots__ = ("at_once", "errors", "failures", "later", "received_bytes", "requests", "sent_bytes")

    def __init__(self) -> None:
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

    def answered(self, frame: ResponseFrame, came: float) -> None:
        """Counts a request that came at that time and is answered in the same turn."""
        seconds = perf_counter() - came
        took = self.at_once
        took.counts[bisect_left(LATENCY_SECONDS, seconds)] += 1  # spelled out: a call would cost as much as all of it
        took.seconds += seconds
        if frame is not None:
            self.sent_bytes += len(frame[0]) if len(frame) == 1 else sum(map(len, frame))

    def answered_later(self, frame: ResponseFrame, came: float) -> None:
        self.later.add(perf_counter() - came)
        if frame is not None:
            self.sent_bytes += sum(map(len, frame))

    def count_errors(self, codes: list[int]) -> None:
        for code in codes:
            self.errors[code] = self.errors.get(code, 0) + 1


NONE: Final[list[int]] = []


def errors_in(api_key: int, response: Any) -> list[int]:
    """Returns every error code in a response, wherever it stands. The list is not to be changed."""
    if api_key == PRODUCE_KEY:  # spelled out for those that come most often, and have most parts
        if response is not None:
            for produced in response.responses:
                for answer in produced.partition_responses:
                    if answer.error_code:
                        return list(_walk(response))
        return NONE
    if api_key == FETCH_KEY and not response.error_code:
        for fetched in response.responses:
            for data in fetched.partitions:
                if data.error_code:
                    return list(_walk(response))
        return NONE
    return NONE if response is None else list(_walk(response))


def error_names(response: Response | None) -> list[str]:
    """Returns the names of the errors in it, each once."""
    return sorted({code_name(code) for code in _walk(response)})


def code_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


class _Shape(NamedTuple):
    has_code: bool
    others: tuple[str, ...]
    """Fields in which there may be more of them."""


_SHAPES: Final[dict[type, _Shape]] = {}


def _walk(part: object) -> Iterator[int]:
    if isinstance(part, list):
        for each in part:
            yield from _walk(each)
        return
    shape = _SHAPES.get(type(part)) or _shape_of(type(part))
    if shape.has_code:
        code: int = part.error_code  # type: ignore[attr-defined]
        if code:
            yield code
    for name in shape.others:
        yield from _walk(getattr(part, name))


def _shape_of(kind: type) -> _Shape:
    fields: tuple[str, ...] = getattr(kind, "__struct_fields__", ())
    declared = {field.name: field for field in kind.__schema__.fields} if fields else {}  # type: ignore[attr-defined]
    others = tuple(name for name in fields if name in declared and _may_hold_codes(declared[name].element))
    shape = _SHAPES[kind] = _Shape("error_code" in fields, others)
    return shape


def _may_hold_codes(element: object) -> bool:
    if not isinstance(element, type):
        return False
    shape = _SHAPES.get(element) or _shape_of(element)
    return shape.has_code or bool(shape.others)
