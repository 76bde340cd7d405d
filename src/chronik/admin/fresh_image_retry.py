"""Retrying of requests on a fresh image before they are rejected.

The local image may not contain a change that another node has already acknowledged. A rejection such as "no such topic"
could then be a stale read. Only requests that would be rejected pay for the read barrier.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import ErrorCode, KafkaError

T = TypeVar("T")

IMAGE_DEPENDENT_ERRORS: Final = frozenset(
    {
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    }
)
"""Error codes that a stale metadata image can cause, so that a retry with a fresh image may succeed."""


async def retry_on_fresh_image(store: MetadataStore, attempt: Callable[[], Awaitable[T]]) -> T:
    """Run an operation, and retry it once on a fresh metadata image if a stale image may have made it fail.

    A failed attempt must not have changed anything.
    """
    try:
        return await attempt()
    except KafkaError as error:
        if error.code not in IMAGE_DEPENDENT_ERRORS:
            raise
    await refresh_image(store)
    return await attempt()


async def refresh_image(store: MetadataStore) -> None:
    """Wait until the metadata image contains all changes that were acknowledged before the call (a read barrier).

    Raises:
        KafkaError: NOT_CONTROLLER if no quorum responds. No command was proposed, so nothing has changed.
    """
    try:
        await store.read_barrier()
    except KafkaError as error:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, f"Nothing was changed: {error.message}") from error
