"""The state hash: the sum, modulo 2^128, of one hash per record of the image.

A sum is independent of the order of records and can be updated incrementally, so nodes can be compared at every index
for about a microsecond per changed record. It detects accidental divergence, not tampering.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, Final

import msgspec

from chronik.metadata.levels import omit_default_fields
from chronik.metadata.records import (
    ApplyResult,
    Broker,
    CommittedOffset,
    NodeRecord,
    Partition,
    Topic,
    Transaction,
    TransactionPartition,
)
from chronik.metadata.sessions import CommandSession, SessionRecord

HASH_BITS: Final = 128
HASH_MASK: Final = (1 << HASH_BITS) - 1

CLUSTER, PRODUCER_IDS, NODE, BROKER, BROKER_CONFIG, FEATURE = range(6)
TOPIC, PARTITION, GROUP, OFFSET, SESSION, SESSION_RESULT, GROUP_CONFIG = range(6, 13)
TRANSACTION, TRANSACTION_PARTITION, STAGED_OFFSET = range(13, 16)
IMPORT, HOLD = 16, 17
USER, SALT_SECRET, ACL, QUOTA = range(18, 22)
SCHEMA, SUBJECT, SCHEMA_SETTINGS, SCHEMA_CONTEXT = range(22, 26)
"""Record types. The numbers are part of the hash and must never change."""

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


def record_hash(*key_and_value: Any) -> int:
    """Return the 128-bit hash of a record of the metadata image, given the record's type, key and value."""
    return int.from_bytes(blake2b(_encode(key_and_value), digest_size=HASH_BITS // 8).digest(), "little")


def compute_committed_offset_hash(group_id: str, topic: str, partition: int, committed: CommittedOffset) -> bytes:
    """Return the hash of a committed offset as little-endian bytes, the form in which the offset table stores it."""
    return blake2b(_encode((OFFSET, group_id, topic, partition, committed)), digest_size=HASH_BITS // 8).digest()


def compute_node_hash(node: NodeRecord) -> int:
    return record_hash(NODE, omit_default_fields(node))


def compute_broker_hash(broker: Broker) -> int:
    return record_hash(BROKER, omit_default_fields(broker))


def compute_topic_hash(topic: Topic) -> int:
    """Return the hash of a topic's record without its partitions, which are hashed as separate records.

    Fields that were added later are hashed only if they are set: a topic without them has the same hash in all
    versions.
    """
    added = (topic.changed_ms, True) if topic.importing else (topic.changed_ms,) if topic.changed_ms >= 0 else ()
    return record_hash(TOPIC, topic.id, topic.name, topic.configs, topic.created_ms, topic.internal, *added)


def compute_partition_hash(topic_id: bytes, index: int, partition: Partition) -> int:
    """Return the hash of a partition's record in the metadata image.

    The reassignment fields are hashed only during a reassignment, so that old snapshots keep their hashes.
    """
    if partition.is_reassigning:
        return record_hash(PARTITION, topic_id, index, partition)
    return record_hash(PARTITION, topic_id, index, msgspec.structs.astuple(partition)[:-2])


def compute_partitions_hash(topic_id: bytes, first: int, partitions: Sequence[Partition]) -> int:
    return sum(compute_partition_hash(topic_id, index, partition) for index, partition in enumerate(partitions, first))


def compute_transaction_hash(transaction: Transaction) -> int:
    """Return the hash of a transaction's record without its partitions, which are hashed as separate records."""
    return record_hash(TRANSACTION, msgspec.structs.astuple(transaction)[:-1])


def compute_transaction_partitions_hash(transactional_id: str, partitions: Iterable[TransactionPartition]) -> int:
    return sum(record_hash(TRANSACTION_PARTITION, transactional_id, partition) for partition in partitions)


def compute_session_hash(session: CommandSession | SessionRecord) -> int:
    return record_hash(SESSION, session.node_id, session.incarnation, session.floor, session.past)


def compute_results_hash(node_id: int, results: Iterable[tuple[int, ApplyResult]]) -> int:
    return sum(record_hash(SESSION_RESULT, node_id, sequence, result) for sequence, result in results)
