"""The entries of which a metadata snapshot consists. Their tags are never reused."""

from __future__ import annotations

from typing import Final

from chronik.metadata.levels import (
    DYNAMIC_MEMBERSHIP_LEVEL,
    SECURITY_LEVEL,
    TRANSACTIONS_LEVEL,
    added_fields,
    since_level,
)
from chronik.metadata.records import (
    Acl,
    Broker,
    CommittedOffset,
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
from chronik.metadata.security.quotas import QuotaEntry
from chronik.metadata.sessions import SessionRecord

SNAPSHOT_FORMAT: Final = 1
FEATURE_TAG: Final = 5


class SnapshotHeader(ImageRecord, frozen=True, tag=1):
    """The header of a snapshot: always the first entry."""

    format: int
    applied_index: int
    state_hash: bytes
    cluster_id: str
    next_producer_id: int


@added_fields()
class NodeEntry(ImageRecord, frozen=True, tag=2):
    """A node of the cluster."""

    node: NodeRecord


@added_fields()
class BrokerEntry(ImageRecord, frozen=True, tag=3):
    """A registered broker."""

    broker: Broker


class BrokerConfigEntry(ImageRecord, frozen=True, tag=4):
    """The dynamic configs of a broker."""

    broker_id: int
    configs: dict[str, str]


class FeatureEntry(ImageRecord, frozen=True, tag=FEATURE_TAG):
    """The level of a feature."""

    name: str
    level: int


@added_fields()
class TopicEntry(ImageRecord, frozen=True, tag=6):
    """A topic with its partitions. The partitions of a large topic follow in separate entries."""

    topic: Topic


class PartitionsEntry(ImageRecord, frozen=True, tag=7):
    """Consecutive partitions of a large topic, starting at `first`."""

    topic_id: bytes
    first: int
    partitions: tuple[Partition, ...]


class GroupEntry(ImageRecord, frozen=True, tag=8):
    """A consumer group."""

    group: Group


class GroupConfigEntry(ImageRecord, frozen=True, tag=11):
    """The configs of a consumer group."""

    group_id: str
    configs: dict[str, str]


class OffsetsEntry(ImageRecord, frozen=True, tag=9):
    """Committed offsets of a group for one topic, by partition."""

    group_id: str
    topic: str
    offsets: tuple[tuple[int, CommittedOffset], ...]


class SessionEntry(ImageRecord, frozen=True, tag=10):
    """A node's session: the results of its latest commands."""

    session: SessionRecord


@since_level(TRANSACTIONS_LEVEL)
class TransactionEntry(ImageRecord, frozen=True, tag=12):
    """A transactional id with the partitions of its transaction. Those of a large transaction follow separately."""

    transaction: Transaction


@since_level(TRANSACTIONS_LEVEL)
class TransactionPartitionsEntry(ImageRecord, frozen=True, tag=13):
    """Further partitions of a large transaction."""

    transactional_id: str
    partitions: tuple[TransactionPartition, ...]


@since_level(TRANSACTIONS_LEVEL)
class StagedOffsetsEntry(ImageRecord, frozen=True, tag=14):
    """Offsets of a group that wait for the end of a producer's transaction."""

    group_id: str
    producer_id: int
    offsets: tuple[tuple[str, int, StagedOffset], ...]


@since_level(DYNAMIC_MEMBERSHIP_LEVEL)
class ImportEntry(ImageRecord, frozen=True, tag=15):
    """The current or latest import."""

    imported: ImportState


@since_level(DYNAMIC_MEMBERSHIP_LEVEL)
class CommitHoldEntry(ImageRecord, frozen=True, tag=16):
    """The active hold on transaction commits."""

    commits_hold: int


@since_level(SECURITY_LEVEL)
class AclEntry(ImageRecord, frozen=True, tag=30):
    """An access control entry."""

    acl: Acl


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
    | SessionEntry
)
