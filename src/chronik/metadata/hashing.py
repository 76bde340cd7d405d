"""The state hash: the sum, modulo 2^128, of one hash per record of the image.

A sum does not depend on any order and can be updated by what a command changed, so that nodes can be compared at
every index at a microsecond per record. It finds divergence by mistake, not by malice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, Final

import msgspec

from chronik.metadata.levels import written
from chronik.metadata.records import (
    Broker,
    CommittedOffset,
    Node,
    Partition,
    Result,
    Topic,
    Transaction,
    TransactionPartition,
)
from chronik.metadata.sessions import Session, SessionRecord

HASH_BITS: Final = 128
HASH_MASK: Final = (1 << HASH_BITS) - 1

CLUSTER, PRODUCER_IDS, NODE, BROKER, BROKER_CONFIG, FEATURE = range(6)
TOPIC, PARTITION, GROUP, OFFSET, SESSION, SESSION_RESULT, GROUP_CONFIG = range(6, 13)
TRANSACTION, TRANSACTION_PARTITION, STAGED_OFFSET = range(13, 16)
IMPORT, HOLD = 16, 17
USER, SALT_SECRET, ACL, QUOTA = range(18, 22)
"""The kinds of records. These numbers go into the hash, and so never change their meaning."""

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


def record_hash(*key_and_value: Any) -> int:
    """`key_and_value` starts with the kind, then what names the record, then what it holds."""
    return int.from_bytes(blake2b(_encode(key_and_value), digest_size=HASH_BITS // 8).digest(), "little")


def offset_digest(group_id: str, topic: str, partition: int, committed: CommittedOffset) -> bytes:
    """Return the hash of a committed offset as little-endian bytes, in which form it is stored with the offset."""
    return blake2b(_encode((OFFSET, group_id, topic, partition, committed)), digest_size=HASH_BITS // 8).digest()


def node_hash(node: Node) -> int:
    return record_hash(NODE, written(node))


def broker_hash(broker: Broker) -> int:
    return record_hash(BROKER, written(broker))


def topic_hash(topic: Topic) -> int:
    """Hashes a topic without its partitions, which are records of their own. What was added later counts from its first
    use on: a topic that was never changed is hashed as before that was noted."""
    added = (topic.changed_ms, True) if topic.importing else (topic.changed_ms,) if topic.changed_ms >= 0 else ()
    return record_hash(TOPIC, topic.id, topic.name, topic.configs, topic.created_ms, topic.internal, *added)


def partition_hash(topic_id: bytes, index: int, partition: Partition) -> int:
    """Hashes a partition that is not being reassigned as before reassignments existed: old snapshots stay good."""
    if partition.is_reassigning:
        return record_hash(PARTITION, topic_id, index, partition)
    return record_hash(PARTITION, topic_id, index, msgspec.structs.astuple(partition)[:-2])


def partitions_hash(topic_id: bytes, first: int, partitions: Sequence[Partition]) -> int:
    return sum(partition_hash(topic_id, index, partition) for index, partition in enumerate(partitions, first))


def transaction_hash(transaction: Transaction) -> int:
    """Hashes a transaction without its partitions, which are records of their own."""
    return record_hash(TRANSACTION, msgspec.structs.astuple(transaction)[:-1])


def transaction_partitions_hash(transactional_id: str, partitions: Iterable[TransactionPartition]) -> int:
    return sum(record_hash(TRANSACTION_PARTITION, transactional_id, partition) for partition in partitions)


def session_hash(session: Session | SessionRecord) -> int:
    return record_hash(SESSION, session.node_id, session.incarnation, session.floor, session.past)


def results_hash(node_id: int, results: Iterable[tuple[int, Result]]) -> int:
    return sum(record_hash(SESSION_RESULT, node_id, sequence, result) for sequence, result in results)
