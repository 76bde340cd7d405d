"""The topics in consumers' subscriptions, the only part of member metadata that the coordinator decodes.

Every version of the consumer protocol starts with a version (int16) and an array of topic names.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

CONSUMER_PROTOCOL_TYPE: Final = "consumer"


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Return the topics of all subscriptions, or None if one of them cannot be decoded."""
    topics: set[str] = set()
    try:
        for subscription in subscriptions:
            topics.update(_decode_topics(subscription))
    except (struct.error, ValueError):
        return None
    return frozenset(topics)


def _decode_topics(subscription: bytes) -> Iterable[str]:
    """Yield the topic names of an encoded subscription."""
    (count,) = struct.unpack_from(">i", subscription, 2)
    position = 6
    for _ in range(count):  # if the count is too large, the first missing name raises struct.error
        (length,) = struct.unpack_from(">h", subscription, position)
        end = position + 2 + length
        if length < 0 or end > len(subscription):
            raise ValueError("topic name extends beyond the end of the subscription")
        yield subscription[position + 2 : end].decode()
        position = end
