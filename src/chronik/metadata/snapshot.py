"""Encoding of an image as a snapshot and decoding, in chunks of a few milliseconds each.

Encoder and decoder hash every record again. A snapshot whose records do not match the incrementally updated state hash
is neither written nor loaded. The tags of snapshot entries are never reused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice
from typing import Final

import msgspec

from chronik.errors import DamagedDataError, check_invariant
from chronik.metadata import hashing
from chronik.metadata.hashing import (
    HASH_MASK,
    compute_broker_hash,
    compute_node_hash,
    compute_partitions_hash,
    compute_results_hash,
    compute_session_hash,
    compute_topic_hash,
    compute_transaction_hash,
    compute_transaction_partitions_hash,
    record_hash,
)
from chronik.metadata.image import FrozenImage, Image
from chronik.metadata.levels import (
    DYNAMIC_MEMBERSHIP_LEVEL,
    SECURITY_LEVEL,
    TRANSACTIONS_LEVEL,
    added_fields,
    check_level_supported,
    omit_default_fields,
    peek_feature_level,
    since_level,
)
from chronik.metadata.records import (
    Acl,
    Broker,
    CommittedOffset,
    Entity,
    Group,
    ImageRecord,
    ImportState,
    NodeRecord,
    Partition,
    SaltSecret,
    ScramCredential,
    StagedOffset,
    Topic,
    Transaction,
    TransactionPartition,
)
from chronik.metadata.schemas import RegistryRecord, SchemaContext, SchemaSettings, StoredSchema, StoredSubject
from chronik.metadata.sessions import SessionRecord
from chronik.metadata.writer import ImageWriter

SNAPSHOT_FORMAT: Final = 1
FEATURE_TAG: Final = 5

CHUNK_RECORDS: Final = 1000
"""The maximum number of records per snapshot chunk. Encoding a chunk blocks the event loop for about 3 ms."""

CHARACTERS_PER_RECORD: Final = 500
"""The number of characters in group members and configs that count as one record of a snapshot chunk.

Encoding them takes about as long. The limit also keeps chunks well below the record size limit of the write-ahead log.
"""

PARTITION_INDEX_END: Final = 1 << 31

_encoder = msgspec.msgpack.Encoder(order="deterministic")


class SnapshotHeader(ImageRecord, frozen=True, tag=1):
    """The snapshot entry with the index and state hash of the image. It is always the first entry."""

    format: int
    applied_index: int
    state_hash: bytes
    cluster_id: str
    next_producer_id: int


@added_fields()
class NodeEntry(ImageRecord, frozen=True, tag=2):
    """The snapshot entry of a cluster node."""

    node: NodeRecord


@added_fields()
class BrokerEntry(ImageRecord, frozen=True, tag=3):
    """The snapshot entry of a registered broker."""

    broker: Broker


class BrokerConfigEntry(ImageRecord, frozen=True, tag=4):
    """The snapshot entry of a broker's dynamic configs."""

    broker_id: int
    configs: dict[str, str]


class FeatureEntry(ImageRecord, frozen=True, tag=FEATURE_TAG):
    """The snapshot entry of a feature and its level."""

    name: str
    level: int


@added_fields()
class TopicEntry(ImageRecord, frozen=True, tag=6):
    """The snapshot entry of a topic and its partitions. A large topic's other partitions follow in separate entries."""

    topic: Topic


class PartitionsEntry(ImageRecord, frozen=True, tag=7):
    """The snapshot entry of consecutive partitions of a large topic, starting at partition `first`."""

    topic_id: bytes
    first: int
    partitions: tuple[Partition, ...]


class GroupEntry(ImageRecord, frozen=True, tag=8):
    """The snapshot entry of a consumer group."""

    group: Group


class GroupConfigEntry(ImageRecord, frozen=True, tag=11):
    """The snapshot entry of a consumer group's configs."""

    group_id: str
    configs: dict[str, str]


class OffsetsEntry(ImageRecord, frozen=True, tag=9):
    """The snapshot entry of the offsets that a group has committed for one topic, by partition."""

    group_id: str
    topic: str
    offsets: tuple[tuple[int, CommittedOffset], ...]


class SessionEntry(ImageRecord, frozen=True, tag=10):
    """The snapshot entry of a node's command session with the results of its latest commands."""

    session: SessionRecord


@since_level(TRANSACTIONS_LEVEL)
class TransactionEntry(ImageRecord, frozen=True, tag=12):
    """The snapshot entry of a transactional id. A large transaction's other partitions follow in separate entries."""

    transaction: Transaction


@since_level(TRANSACTIONS_LEVEL)
class TransactionPartitionsEntry(ImageRecord, frozen=True, tag=13):
    """The snapshot entry of further partitions of a large transaction."""

    transactional_id: str
    partitions: tuple[TransactionPartition, ...]


@since_level(TRANSACTIONS_LEVEL)
class StagedOffsetsEntry(ImageRecord, frozen=True, tag=14):
    """The snapshot entry of a group's offsets that are staged in a producer's open transaction."""

    group_id: str
    producer_id: int
    offsets: tuple[tuple[str, int, StagedOffset], ...]


@since_level(DYNAMIC_MEMBERSHIP_LEVEL)
class ImportEntry(ImageRecord, frozen=True, tag=15):
    """The snapshot entry of the current or latest import."""

    imported: ImportState


@since_level(DYNAMIC_MEMBERSHIP_LEVEL)
class CommitHoldEntry(ImageRecord, frozen=True, tag=16):
    """The snapshot entry of the hold that currently blocks transaction commits."""

    commits_hold: int


@since_level(SECURITY_LEVEL)
class AclEntry(ImageRecord, frozen=True, tag=30):
    """The snapshot entry of an access control entry."""

    acl: Acl


@since_level(SECURITY_LEVEL)
class QuotaEntry(ImageRecord, frozen=True, tag=31):
    """The snapshot entry of a quota entity and its quota values."""

    entity: Entity
    values: dict[str, float]


SnapshotEntry = (
    SnapshotHeader
    | NodeEntry
    | BrokerEntry
    | BrokerConfigEntry
    | FeatureEntry
    | TopicEntry
    | PartitionsEntry
    | GroupEntry
    | GroupConfigEntry
    | OffsetsEntry
    | TransactionEntry
    | TransactionPartitionsEntry
    | StagedOffsetsEntry
    | ImportEntry
    | CommitHoldEntry
    | SaltSecret
    | ScramCredential
    | AclEntry
    | QuotaEntry
    | StoredSchema
    | StoredSubject
    | SchemaSettings
    | SchemaContext
    | SessionEntry
)


WeightedEntry = tuple[SnapshotEntry, int]
"""A snapshot entry and its weight, that is, the number of records it counts as in the size limit of a chunk."""


@cache
def _decoder() -> msgspec.msgpack.Decoder[list[SnapshotEntry]]:
    """Return the decoder of snapshot chunks, which is created on first use because that takes milliseconds."""
    return msgspec.msgpack.Decoder(list[SnapshotEntry])


def encode_snapshot(frozen: FrozenImage) -> Iterator[bytes]:
    """Yield the encoded chunks of a snapshot one at a time, so that the caller can yield to the event loop."""
    total = 0
    entries: list[SnapshotEntry] = []
    weight = 0
    for entry, entry_weight in _iter_snapshot_entries(frozen):
        if entries and weight + entry_weight > CHUNK_RECORDS:
            yield _encoder.encode(entries)
            entries, weight = [], 0
        entries.append(omit_default_fields(entry))
        total += _compute_entry_hash(entry)
        weight += entry_weight
    check_invariant(
        total & HASH_MASK == frozen.state_hash, f"records at {frozen.applied_index} do not match the state hash"
    )
    yield _encoder.encode(entries)


class SnapshotLoader:
    """A decoder that builds a metadata image from the chunks of a snapshot."""

    def __init__(self) -> None:
        self._writer = ImageWriter(Image())
        self._head: SnapshotHeader | None = None

    def add(self, chunk: bytes) -> None:
        """Decode a snapshot chunk and add its entries to the image under construction.

        Raises:
            DamagedDataError: The chunk cannot be decoded.
            UnsupportedLevelError: A newer version has written the snapshot.
        """
        check_level_supported(peek_feature_level(chunk, FEATURE_TAG), "the snapshot")
        try:
            entries = _decoder().decode(chunk)
        except msgspec.DecodeError as error:
            raise DamagedDataError(f"this version cannot decode the snapshot: {error}") from error
        for entry in entries:
            if isinstance(entry, SnapshotHeader):
                self._head = entry
            _load(self._writer, entry)

    def finish(self) -> Image:
        """Verify the state hash and return the decoded image.

        Raises:
            DamagedDataError: The image does not match its state hash.
        """
        if self._head is None:
            raise DamagedDataError("the snapshot has no header")
        image = self._writer.image
        self._writer.finish_load(self._head.applied_index)
        if image.state_hash.to_bytes(16, "little") != self._head.state_hash:
            raise DamagedDataError(f"the snapshot at index {self._head.applied_index} does not match its state hash")
        return image


def decode_snapshot(chunks: Iterable[bytes]) -> Image:
    """Decode the chunks of a snapshot into an image. Raises DamagedDataError or UnsupportedLevelError."""
    loader = SnapshotLoader()
    for chunk in chunks:
        loader.add(chunk)
    return loader.finish()


def _iter_snapshot_entries(frozen: FrozenImage) -> Iterator[WeightedEntry]:
    state_hash = frozen.state_hash.to_bytes(16, "little")
    yield (
        SnapshotHeader(SNAPSHOT_FORMAT, frozen.applied_index, state_hash, frozen.cluster_id, frozen.next_producer_id),
        1,
    )
    # Features come first: a reader checks the level before it decodes entries that the level introduced.
    yield from ((FeatureEntry(name, level), 1) for name, level in frozen.features.items())
    yield from ((NodeEntry(node), 1) for node in frozen.nodes.values())
    yield from ((BrokerEntry(broker), 1) for broker in frozen.brokers.values())
    for broker_id, configs in frozen.broker_configs.items():
        yield BrokerConfigEntry(broker_id, dict(configs)), 1
    if frozen.imported is not None:
        yield ImportEntry(frozen.imported), 1
    for topic in frozen.topics.values():
        yield from _iter_topic_entries(topic)
    yield from ((GroupEntry(group), _compute_group_weight(group)) for group in frozen.groups.values())
    for group_id, configs in frozen.group_configs.items():
        yield GroupConfigEntry(group_id, dict(configs)), 1 + len(group_id) // CHARACTERS_PER_RECORD
    for group_id, offsets in frozen.offsets.groups():
        for name, partitions in offsets.by_topic():
            yield from _iter_offset_entries(group_id, name, partitions)
    for transaction in frozen.transactions.values():
        yield from _iter_transaction_entries(transaction)
    for group_id, producer_id, staged in frozen.staged:
        items = ((name, partition, offset) for (name, partition), offset in staged.items())
        while some := tuple(islice(items, CHUNK_RECORDS)):
            yield StagedOffsetsEntry(group_id, producer_id, some), len(some)
    if frozen.commits_hold:
        yield CommitHoldEntry(frozen.commits_hold), 1
    yield from ((each, 1) for each in frozen.users)
    yield from ((AclEntry(acl), 1) for acl in frozen.acls)
    yield from ((QuotaEntry(entity, dict(values)), 2) for entity, values in frozen.quotas.items())
    yield from ((each, _compute_registry_weight(each)) for each in frozen.schemas.iter_records())
    yield from ((SessionEntry(session), 1 + len(session.results)) for session in frozen.sessions)


def _iter_topic_entries(topic: Topic) -> Iterator[WeightedEntry]:
    if len(topic.partitions) <= CHUNK_RECORDS:
        yield TopicEntry(topic), len(topic.partitions) + _compute_configs_weight(topic)
        return
    yield TopicEntry(msgspec.structs.replace(topic, partitions=())), _compute_configs_weight(topic)
    for first in range(0, len(topic.partitions), CHUNK_RECORDS):
        partitions = topic.partitions[first : first + CHUNK_RECORDS]
        yield PartitionsEntry(topic.id, first, partitions), len(partitions)


def _iter_transaction_entries(transaction: Transaction) -> Iterator[WeightedEntry]:
    partitions = transaction.partitions
    weight = 1 + sum(map(len, transaction.groups)) // CHARACTERS_PER_RECORD
    if len(partitions) <= CHUNK_RECORDS:
        yield TransactionEntry(transaction), weight + len(partitions)
        return
    yield TransactionEntry(msgspec.structs.replace(transaction, partitions=())), weight
    for first in range(0, len(partitions), CHUNK_RECORDS):
        some = partitions[first : first + CHUNK_RECORDS]
        yield TransactionPartitionsEntry(transaction.transactional_id, some), len(some)


def _compute_configs_weight(topic: Topic) -> int:
    return 1 + sum(len(key) + len(value) for key, value in topic.configs.items()) // CHARACTERS_PER_RECORD


def _compute_group_weight(group: Group) -> int:
    characters = sum(
        len(member.assignment) + sum(len(name) + len(metadata) for name, metadata in member.protocols)
        for member in group.members
    )
    return 1 + len(group.members) + characters // CHARACTERS_PER_RECORD


def _compute_registry_weight(record: RegistryRecord) -> int:
    match record:
        case StoredSchema():
            return 1 + len(record.references) + record.size // CHARACTERS_PER_RECORD
        case StoredSubject():
            return 1 + len(record.versions)
        case SchemaSettings():
            return 1 + len(record.config) // CHARACTERS_PER_RECORD
        case SchemaContext():
            return 1


def _iter_offset_entries(
    group_id: str, topic: str, offsets: Iterator[tuple[int, CommittedOffset]]
) -> Iterator[WeightedEntry]:
    while some := tuple(islice(offsets, CHUNK_RECORDS)):
        yield OffsetsEntry(group_id, topic, some), len(some)


def _compute_entry_hash(entry: SnapshotEntry) -> int:
    """Return the sum of the hashes of the records in an entry, which equals the incrementally computed hash."""
    match entry:
        case OffsetsEntry(group_id, topic_name, offsets):
            return sum(record_hash(hashing.OFFSET, group_id, topic_name, number, value) for number, value in offsets)
        case TopicEntry(topic):
            return compute_topic_hash(topic) + compute_partitions_hash(topic.id, 0, topic.partitions)
        case PartitionsEntry(topic_id, first, partitions):
            return compute_partitions_hash(topic_id, first, partitions)
        case GroupEntry(group):
            return record_hash(hashing.GROUP, group)
        case GroupConfigEntry(group_id, configs):
            return record_hash(hashing.GROUP_CONFIG, group_id, configs)
        case NodeEntry(node):
            return compute_node_hash(node)
        case BrokerEntry(broker):
            return compute_broker_hash(broker)
        case BrokerConfigEntry(broker_id, configs):
            return record_hash(hashing.BROKER_CONFIG, broker_id, configs)
        case FeatureEntry(name, level):
            return record_hash(hashing.FEATURE, name, level)
        case TransactionEntry(transaction):
            partitions_of_it = compute_transaction_partitions_hash(transaction.transactional_id, transaction.partitions)
            return compute_transaction_hash(transaction) + partitions_of_it
        case TransactionPartitionsEntry(transactional_id, parts):
            return compute_transaction_partitions_hash(transactional_id, parts)
        case StagedOffsetsEntry(group_id, producer_id, staged):
            return sum(record_hash(hashing.STAGED_OFFSET, group_id, producer_id, *each) for each in staged)
        case ImportEntry(imported):
            return record_hash(hashing.IMPORT, imported)
        case CommitHoldEntry(commits_hold):
            return record_hash(hashing.HOLD, commits_hold)
        case SaltSecret():
            return record_hash(hashing.SALT_SECRET, entry)
        case ScramCredential():
            return record_hash(hashing.USER, entry)
        case AclEntry(acl):
            return record_hash(hashing.ACL, acl)
        case QuotaEntry(entity, values):
            return record_hash(hashing.QUOTA, entity, values)
        case StoredSchema():
            return record_hash(hashing.SCHEMA, entry)
        case StoredSubject():
            return record_hash(hashing.SUBJECT, entry)
        case SchemaSettings():
            return record_hash(hashing.SCHEMA_SETTINGS, entry)
        case SchemaContext():
            return record_hash(hashing.SCHEMA_CONTEXT, entry)
        case SessionEntry(session):
            return compute_session_hash(session) + compute_results_hash(session.node_id, session.results)
        case SnapshotHeader():
            cluster = record_hash(hashing.CLUSTER, entry.cluster_id) if entry.cluster_id else 0
            next_id = entry.next_producer_id
            return cluster + (record_hash(hashing.PRODUCER_IDS, next_id) if next_id else 0)


def _load(writer: ImageWriter, entry: SnapshotEntry) -> None:
    match entry:
        case SnapshotHeader():
            if entry.format != SNAPSHOT_FORMAT:
                raise DamagedDataError(f"the snapshot has format {entry.format}; this version reads {SNAPSHOT_FORMAT}")
            if entry.cluster_id:
                writer.set_cluster_id(entry.cluster_id)
            writer.set_next_producer_id(entry.next_producer_id)
        case NodeEntry(node):
            writer.put_node(node)
        case BrokerEntry(broker):
            writer.put_broker(broker)
        case BrokerConfigEntry(broker_id, configs):
            writer.set_broker_configs(broker_id, configs)
        case FeatureEntry(name, level):
            writer.set_feature(name, level)
        case TopicEntry(topic):
            writer.add_topic(topic)
        case PartitionsEntry(topic_id, _, partitions):
            known_topic = writer.image.all_topics_by_id[topic_id]
            writer.add_partitions(known_topic, partitions, known_topic.changed_ms)
        case GroupEntry(group):
            writer.put_group(group)
        case GroupConfigEntry(group_id, configs):
            writer.set_group_configs(group_id, configs)
        case OffsetsEntry(group_id, topic_name, offsets):
            for partition, _ in offsets:
                if not 0 <= partition < PARTITION_INDEX_END:
                    raise DamagedDataError(
                        f"the snapshot has an offset of {topic_name}-{partition}, which cannot exist"
                    )
            known_group = writer.image.groups.get(group_id)
            writer.put_offsets(group_id if known_group is None else known_group.group_id, topic_name, offsets)
        case TransactionEntry(transaction):
            writer.put_transaction(transaction)
        case TransactionPartitionsEntry(transactional_id, parts):
            known = writer.image.transactions[transactional_id]
            writer.put_transaction(msgspec.structs.replace(known, partitions=(*known.partitions, *parts)))
        case StagedOffsetsEntry(group_id, producer_id, staged):
            for name, partition, offset in staged:
                writer.put_staged_offset(group_id, producer_id, name, partition, offset)
        case ImportEntry(imported):
            writer.set_import_state(imported)
        case CommitHoldEntry(commits_hold):
            writer.set_commit_hold_index(commits_hold)
        case SaltSecret(secret):
            writer.set_salt_secret(secret)
        case ScramCredential():
            writer.put_credential(entry)
        case AclEntry(acl):
            writer.add_acl(acl)
        case QuotaEntry(entity, values):
            writer.set_quotas(entity, values)
        case StoredSchema():
            writer.add_schema(entry)
        case StoredSubject():
            writer.put_subject(entry)
        case SchemaSettings():
            writer.put_schema_settings(entry)
        case SchemaContext():
            writer.put_schema_context(entry)
        case SessionEntry(session):
            writer.restore_session(session)
