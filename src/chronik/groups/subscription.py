"""The topics named in consumers' subscriptions, the only part of a member's metadata that the coordinator reads.

Every version of the consumer protocol begins the same way: version int16, then an array of topic names.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

CONSUMER_PROTOCOL_TYPE: Final = "consumer"


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Returns None when one of them cannot be read."""
    topics: set[str] = set()
    try:
        for subscription in subscriptions:
            topics.update(_topics(subscription))
    except (struct.error, ValueError):
        return None
    return frozenset(topics)


def _topics(subscription: bytes) -> Iterable[str]:
    (count,) = struct.unpack_from(">i", subscription, 2)
    position = 6
    for _ in range(count):  # a count beyond the bytes left ends in struct.error at the first missing name
        (length,) = struct.unpack_from(">h", subscription, position)
        end = position + 2 + length
        if length < 0 or end > len(subscription):
            raise ValueError("a topic name reaches beyond the subscription")
        yield subscription[position + 2 : end].decode()
        position = end
