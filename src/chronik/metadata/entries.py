"""What a snapshot consists of: an entry for each record of the image, or for a few that belong together. Kinds are
forever: a tag that was once used never means anything else."""

from __future__ import annotations

from typing import Final

from chronik.metadata.levels import GROWTH, SECURITY, TRANSACTIONS, added_fields, since_level
from chronik.metadata.records import (
    Acl,
    Broker,
    CommittedOffset,
    Group,
    Import,
    Node,
    Partition,
    Record,
    SaltSecret,
    ScramCredential,
    StagedOffset,
    Topic,
    Transaction,
    TransactionPartition,
)
from chronik.metadata.security.quotas import QuotaEntry
from chronik.metadata.sessions import SessionRecord

FORMAT: Final = 1
FEATURE_TAG: Final = 5


class Head(Record, frozen=True, tag=1):
    """Always first."""

    format: int
    applied_index: int
    state_hash: bytes
    cluster_id: str
    next_producer_id: int


@added_fields()
class NodeEntry(Record, frozen=True, tag=2):
    node: Node


@added_fields()
class BrokerEntry(Record, frozen=True, tag=3):
    broker: Broker


class BrokerConfigEntry(Record, frozen=True, tag=4):
    broker_id: int
    configs: dict[str, str]


class FeatureEntry(Record, frozen=True, tag=FEATURE_TAG):
    name: str
    level: int


@added_fields()
class TopicEntry(Record, frozen=True, tag=6):
    """A topic with its first partitions; the others of a large topic follow."""

    topic: Topic


class PartitionsEntry(Record, frozen=True, tag=7):
    topic_id: bytes
    first: int
    partitions: tuple[Partition, ...]


class GroupEntry(Record, frozen=True, tag=8):
    group: Group


class GroupConfigEntry(Record, frozen=True, tag=11):
    group_id: str
    configs: dict[str, str]


class OffsetsEntry(Record, frozen=True, tag=9):
    group_id: str
    topic: str
    offsets: tuple[tuple[int, CommittedOffset], ...]


class SessionEntry(Record, frozen=True, tag=10):
    session: SessionRecord


@since_level(TRANSACTIONS)
class TransactionEntry(Record, frozen=True, tag=12):
    """A transactional id with its first partitions; the others of a large transaction follow."""

    transaction: Transaction


@since_level(TRANSACTIONS)
class TransactionPartitionsEntry(Record, frozen=True, tag=13):
    transactional_id: str
    partitions: tuple[TransactionPartition, ...]


@since_level(TRANSACTIONS)
class StagedEntry(Record, frozen=True, tag=14):
    group_id: str
    producer_id: int
    offsets: tuple[tuple[str, int, StagedOffset], ...]


@since_level(GROWTH)
class ImportEntry(Record, frozen=True, tag=15):
    imported: Import


@since_level(GROWTH)
class HoldEntry(Record, frozen=True, tag=16):
    commits_hold: int


@since_level(SECURITY)
class AclEntry(Record, frozen=True, tag=30):
    acl: Acl


Entry = (
    Head
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
    | StagedEntry
    | ImportEntry
    | HoldEntry
    | SaltSecret
    | ScramCredential
    | AclEntry
    | QuotaEntry
    | SessionEntry
)
