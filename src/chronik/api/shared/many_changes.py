"""Changes of many things by one request: each stands or falls alone, and in between others have their turn."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable
from typing import Any, TypeVar

from chronik.metadata.slices import Pace, in_pieces
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.failures import told

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


async def named_once(elements: Iterable[T], key: Callable[[T], K]) -> dict[K, T | None]:
    """Returns what each name stands for, in the order of their first naming, and None for a name that is given more
    than once: nobody can say which of them is meant."""
    found: dict[K, T | None] = {}
    pace = Pace()
    for some in in_pieces(elements):
        for each in some:
            name = key(each)
            found[name] = None if name in found else each
        await pace.yield_if_due()
    return found


async def changed(
    wanted: dict[K, T | None], change: Callable[[T], Awaitable[None]], named_twice: Callable[[K], str]
) -> AsyncIterator[tuple[K, dict[str, Any]]]:
    """Yields each name with the error fields of its result. Whatever is None is refused."""
    pace = Pace()
    for name, each in wanted.items():
        await pace.yield_if_due()
        if each is None:
            yield name, told(KafkaError(ErrorCode.INVALID_REQUEST, named_twice(name)))
            continue
        try:
            await change(each)
            outcome = told(None)
        except KafkaError as error:
            outcome = told(error)
        yield name, outcome
