"""Requests that change many objects: each change succeeds or fails alone, and other work may run between them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable
from typing import Any, TypeVar

from chronik.metadata.chunking import YieldTimer, iter_chunks
from chronik.protocol.error_responses import build_error_fields
from chronik.protocol.errors import ErrorCode, KafkaError

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


async def index_by_unique_key(elements: Iterable[T], key: Callable[[T], K]) -> dict[K, T | None]:
    """Return a dict of a request's elements by key, where a duplicate key has the value None.

    A request that names an object twice is ambiguous, so the caller rejects that object.
    """
    found: dict[K, T | None] = {}
    pace = YieldTimer()
    for chunk in iter_chunks(elements):
        for each in chunk:
            name = key(each)
            found[name] = None if name in found else each
        await pace.yield_if_due()
    return found


async def apply_change_to_each(
    elements_by_key: dict[K, T | None], change: Callable[[T], Awaitable[None]], duplicate_message: Callable[[K], str]
) -> AsyncIterator[tuple[K, dict[str, Any]]]:
    """Apply a change to each element of a request, and yield the element's key and error fields.

    An element that is None, because its key is a duplicate, fails with INVALID_REQUEST.
    """
    pace = YieldTimer()
    for name, each in elements_by_key.items():
        await pace.yield_if_due()
        if each is None:
            yield name, build_error_fields(KafkaError(ErrorCode.INVALID_REQUEST, duplicate_message(name)))
            continue
        try:
            await change(each)
            outcome = build_error_fields(None)
        except KafkaError as error:
            outcome = build_error_fields(error)
        yield name, outcome
