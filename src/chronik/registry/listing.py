"""Versions and lists of the registry: numbers, pages, and how long a list may hold the event loop."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from heapq import merge
from typing import Final, TypeVar
from uuid import UUID

from chronik.metadata.schemas import (
    SUBJECTS_LOOKED_UP_MAX,
    SchemaTable,
    StoredSchema,
    StoredSubject,
    StoredVersion,
    qualify_reference,
)
from chronik.registry.entities import SchemaReference, SubjectSchema
from chronik.registry.errors import InvalidVersionError
from chronik.registry.parser import TYPES_BY_NUMBER
from chronik.registry.properties import decode_properties
from chronik.scheduler import hold_response_slot, yield_loop

LATEST: Final = -1
"""The version number that stands for the latest version that is not deleted."""

VERSION_MAX: Final = 2**31 - 1
LIMIT_MAX: Final = 2**31 - 1

SLICE_SECONDS: Final = 0.002
"""The time in seconds for which a list is computed before it yields to the event loop."""

ITEMS_SORTED_AT_ONCE: Final = 2000
"""The number of items that are sorted without yielding to the event loop. It takes a millisecond."""

T = TypeVar("T")
OrderedT = TypeVar("OrderedT", str, tuple[str, int])


class ListSlices:
    """A time limit for a loop on the event loop: when it has passed, the loop waits until the scheduler resumes it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until = clock() + SLICE_SECONDS

    async def pause_if_due(self) -> None:
        """Yield to the event loop if the loop has held it for too long. Called for each item."""
        if self._clock() > self._until:
            await yield_loop()
            self._until = self._clock() + SLICE_SECONDS


async def sort_in_slices(items: list[OrderedT]) -> list[OrderedT]:
    """Return items in order, without holding the event loop for long."""
    slices = ListSlices()
    chunks = []
    for start in range(0, len(items), ITEMS_SORTED_AT_ONCE):
        await slices.pause_if_due()
        chunks.append(sorted(items[start : start + ITEMS_SORTED_AT_ONCE]))
    merged: list[OrderedT] = []
    for item in merge(*chunks):
        await slices.pause_if_due()
        merged.append(item)
    return merged


@asynccontextmanager
async def limit_concurrent_lists(table: SchemaTable) -> AsyncGenerator[None, None]:
    """Wait until few other clients list a large registry: each list needs megabytes of memory."""
    if len(table.subjects) <= SUBJECTS_LOOKED_UP_MAX:
        yield
        return
    async with hold_response_slot():
        yield


def parse_version(version: str | int) -> int:
    """Return the number of a version, or -1 for the latest.

    Raises:
        InvalidVersionError: The version is neither a positive number nor "latest" nor -1.
    """
    text = str(version).strip()
    if text.lower() == "latest":
        return LATEST
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 10):
        raise InvalidVersionError(version)
    number = int(text)
    if number > VERSION_MAX or (number <= 0 and number != LATEST):
        raise InvalidVersionError(version)
    return number


def find_version(subject: StoredSubject, number: int) -> StoredVersion | None:
    """Return a version of a subject. The latest is the last one that is not deleted."""
    if number != LATEST:
        return subject.find_version(number)
    return next((version for version in reversed(subject.versions) if not version.is_deleted), None)


def is_version_deleted(subject: StoredSubject, number: int) -> bool:
    """Return whether a version is soft-deleted or does not exist."""
    version = subject.find_version(number)
    return version is None or version.is_deleted


def is_listed(is_deleted: bool, deleted: bool, deleted_only: bool) -> bool:
    """Return whether a subject or version is part of a list, given whether it is soft-deleted."""
    return is_deleted if deleted_only else deleted or not is_deleted


def select_page(items: list[T], offset: int, limit: int, limit_max: int = LIMIT_MAX) -> list[T]:
    """Return the items from an offset. A limit that is not positive, or above the maximum, means the maximum."""
    start = max(0, offset)
    return items[start : start + (limit if 0 < limit <= limit_max else limit_max)]


def render_version(
    name: str, schema: StoredSchema, version: StoredVersion, *, reference_format: str = ""
) -> SubjectSchema:
    """Return a version of a subject as clients see it."""
    is_qualified = reference_format == "qualified"
    references = [
        SchemaReference(
            each.name, qualify_reference(schema.context, each.subject) if is_qualified else each.subject, each.version
        )
        for each in schema.references
    ]
    metadata, rule_set = decode_properties(schema.properties)
    return SubjectSchema(
        subject=name,
        version=version.number,
        id=version.schema_id,
        guid=str(UUID(bytes=schema.guid)),
        schema=schema.text,
        schema_type=TYPES_BY_NUMBER[schema.schema_type].value,
        references=references or None,
        metadata=metadata,
        rule_set=rule_set,
        ts=version.time_ms,
        deleted=version.is_deleted,
    )
