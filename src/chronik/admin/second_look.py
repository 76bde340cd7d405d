"""A refusal that rests on the local image is given only after a second look at a fresh one.

Another node may have answered a change that this one has not applied yet: "no such topic" would then be a stale read in
disguise. Only the one who is about to be refused pays for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import ErrorCode, KafkaError

T = TypeVar("T")

BY_THE_IMAGE: Final = frozenset(
    {
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    }
)


async def with_second_look(store: MetadataStore, attempt: Callable[[], Awaitable[T]]) -> T:
    """Tries again with a fresh image after one of these, which must have changed nothing. Raises what that raises."""
    try:
        return await attempt()
    except KafkaError as error:
        if error.code not in BY_THE_IMAGE:
            raise
    await look_again(store)
    return await attempt()


async def look_again(store: MetadataStore) -> None:
    """Returns when the image has all that was ever answered. Raises NOT_CONTROLLER without a quorum: nothing was
    proposed yet, so there is no doubt about what became of it."""
    try:
        await store.read_barrier()
    except KafkaError as error:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, f"Nothing was changed: {error.message}") from error
