"""The state hash: the sum, modulo 2^128, of one hash per record of the image.

A sum does not depend on any order and can be updated by what a command changed, so that nodes can be compared at
every index at a microsecond per record. It finds divergence by mistake, not by malice.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final

import msgspec

HASH_BITS: Final = 128
HASH_MASK: Final = (1 << HASH_BITS) - 1

CLUSTER, PRODUCER_IDS, NODE, BROKER, BROKER_CONFIG, FEATURE = range(6)
TOPIC, PARTITION, GROUP, OFFSET, SESSION, SESSION_RESULT = range(6, 12)
"""The kinds of records. The number goes into the hash: it never changes its meaning."""

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


def record_hash(*key_and_value: Any) -> int:
    """`key_and_value` starts with the kind, then what names the record, then what it holds."""
    return int.from_bytes(blake2b(_encode(key_and_value), digest_size=HASH_BITS // 8).digest(), "little")
