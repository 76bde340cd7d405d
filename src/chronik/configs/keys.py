"""Kafka's configuration keys that mean something here: types, defaults and what is a legal value. Data, and no more.

Those of Kafka's that have no effect are in `kept_keys`. A key of a topic that is not here is refused (INVALID_CONFIG)
rather than stored and ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from chronik.configs.checks import (
    INT_MAX,
    LONG_MAX,
    Check,
    anything,
    boolean,
    choice,
    choice_or_none,
    choices,
    number,
    throttled_replicas,
    unlimited_or,
    whole,
)


class ConfigType(IntEnum):
    """As DescribeConfigs names them."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Scope(IntEnum):
    """Where a broker key may be changed while the node runs."""

    READ_ONLY = 0
    PER_BROKER = 1
    CLUSTER_WIDE = 2


class Fallback(NamedTuple):
    """The same in other units: `unit` of the key that falls back make one of this."""

    name: str
    unit: int


@dataclass(frozen=True, slots=True)
class ConfigKey:
    name: str
    type: ConfigType
    default: str | None
    doc: str
    check: Check
    synonym: str | None = None
    """For a topic key: the broker key that gives its default."""
    scope: Scope = Scope.READ_ONLY
    fallbacks: tuple[Fallback, ...] = ()
    """Broker keys that give its default, where it has none of its own, nearest first."""
    kept: bool = False
    """Known for Kafka's sake: stored and described, and without effect."""
    internal: bool = False
    """Described only where it is set."""
    per_listener: bool = False
    """Changed only with the prefix of a listener, `listener.name.NAME.`."""
    secret: bool = False

    @property
    def sensitive(self) -> bool:
        """Whether its value is never shown."""
        return self.secret or self.type is ConfigType.PASSWORD


def _int(name: str, default: int, doc: str, low: int = 0, high: int = INT_MAX, **more: object) -> ConfigKey:
    return ConfigKey(name, ConfigType.INT, str(default), doc, whole(low, high), **more)  # type: ignore[arg-type]


def _long(name: str, default: int, doc: str, low: int = 0, high: int = LONG_MAX, **more: object) -> ConfigKey:
    return ConfigKey(name, ConfigType.LONG, str(default), doc, whole(low, high), **more)  # type: ignore[arg-type]


def _flag(name: str, default: bool, doc: str, **more: object) -> ConfigKey:
    text = "true" if default else "false"
    return ConfigKey(name, ConfigType.BOOLEAN, text, doc, boolean, **more)  # type: ignore[arg-type]


def _text(name: str, default: str, doc: str, check: Check = anything, **more: object) -> ConfigKey:
    return ConfigKey(name, ConfigType.STRING, default, doc, check, **more)  # type: ignore[arg-type]


def _by_name(*keys: ConfigKey) -> dict[str, ConfigKey]:
    return {key.name: key for key in keys}


COMPRESSION_TYPES = ("uncompressed", "gzip", "snappy", "lz4", "zstd", "producer")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")

SEGMENT_BYTES_MIN = 1 << 20
"""Kafka's own, since 4.1: each segment is two open files. Smaller values that topics were given before stay."""

TOPIC_KEYS = _by_name(
    ConfigKey(
        "cleanup.policy",
        ConfigType.LIST,
        "delete",
        "Whether old segments are deleted, compacted, both or kept.",
        choices("delete", "compact"),
        "log.cleanup.policy",
    ),
    _flag("columnar.enabled", False, "Whether pipelines that are told no topics land this one in a table."),
    _text(
        "columnar.format",
        "",
        'Whether its table has bytes ("raw") or fields ("json"); empty: as pipelines say.',
        choice_or_none("raw", "json"),
    ),
    _text(
        "columnar.partition.by",
        "",
        "How its table is partitioned; empty: as pipelines say.",
        choice_or_none("date", "hour", "none"),
    ),
    _text(
        "compression.type",
        "producer",
        'How batches are stored; "producer" keeps them as they came.',
        choice(*COMPRESSION_TYPES),
        synonym="compression.type",
    ),
    _int(
        "compression.gzip.level",
        -1,
        "Level for gzip, if the broker compresses.",
        -1,
        9,
        synonym="compression.gzip.level",
    ),
    _int(
        "compression.lz4.level", 9, "Level for lz4, if the broker compresses.", 1, 17, synonym="compression.lz4.level"
    ),
    _int(
        "compression.zstd.level",
        3,
        "Level for zstd, if the broker compresses.",
        -131072,
        22,
        synonym="compression.zstd.level",
    ),
    _long(
        "delete.retention.ms",
        86_400_000,
        "How long a tombstone stays in a compacted topic.",
        synonym="log.cleaner.delete.retention.ms",
    ),
    _long(
        "file.delete.delay.ms",
        60_000,
        "How long a deleted segment's file stays on disk.",
        synonym="log.segment.delete.delay.ms",
    ),
    _long(
        "flush.messages",
        LONG_MAX,
        'Sync after this many records, if `flush` is "os".',
        1,
        synonym="log.flush.interval.messages",
    ),
    _long("flush.ms", LONG_MAX, 'Sync after this time, if `flush` is "os".', synonym="log.flush.interval.ms"),
    _int(
        "index.interval.bytes",
        4096,
        "Bytes of log between two entries of an index.",
        synonym="log.index.interval.bytes",
    ),
    _long(
        "max.compaction.lag.ms",
        LONG_MAX,
        "A record is compacted at the latest after this time.",
        1,
        synonym="log.cleaner.max.compaction.lag.ms",
    ),
    _int("max.message.bytes", 1_048_588, "The largest batch that is accepted.", synonym="message.max.bytes"),
    _long(
        "message.timestamp.after.max.ms",
        3_600_000,
        "How far a record's time may lie in the future.",
        synonym="log.message.timestamp.after.max.ms",
    ),
    _long(
        "message.timestamp.before.max.ms",
        LONG_MAX,
        "How far a record's time may lie in the past.",
        synonym="log.message.timestamp.before.max.ms",
    ),
    _text(
        "message.timestamp.type",
        "CreateTime",
        "Whether records keep the producer's time or get the broker's.",
        choice(*TIMESTAMP_TYPES),
        synonym="log.message.timestamp.type",
    ),
    ConfigKey(
        "min.cleanable.dirty.ratio",
        ConfigType.DOUBLE,
        "0.5",
        "Share of uncompacted log that starts compaction.",
        number(0, 1),
        "log.cleaner.min.cleanable.ratio",
    ),
    _long(
        "min.compaction.lag.ms",
        0,
        "A record is not compacted before this time.",
        synonym="log.cleaner.min.compaction.lag.ms",
    ),
    _int("min.insync.replicas", 1, "Replicas that must be in sync for acks=all.", 1, synonym="min.insync.replicas"),
    _long(
        "local.retention.bytes",
        -2,
        "Accepted for Kafka's sake; there is no tiered storage.",
        -2,
        synonym="log.local.retention.bytes",
        kept=True,
    ),
    _long(
        "local.retention.ms",
        -2,
        "Accepted for Kafka's sake; there is no tiered storage.",
        -2,
        synonym="log.local.retention.ms",
        kept=True,
    ),
    _flag(
        "preallocate",
        False,
        "Accepted for Kafka's sake; files grow as they are written.",
        synonym="log.preallocate",
        kept=True,
    ),
    _flag("remote.log.copy.disable", False, "Accepted for Kafka's sake; there is no tiered storage.", kept=True),
    _flag("remote.log.delete.on.disable", False, "Accepted for Kafka's sake; there is no tiered storage.", kept=True),
    ConfigKey(
        "remote.storage.enable",
        ConfigType.BOOLEAN,
        "false",
        "Always false; there is no tiered storage.",
        choice("false"),
        kept=True,
    ),
    _long(
        "retention.bytes",
        -1,
        "Size from which a partition's oldest segments are deleted; -1 for none.",
        -1,
        synonym="log.retention.bytes",
    ),
    _long(
        "retention.ms", 604_800_000, "Age from which segments are deleted; -1 for none.", -1, synonym="log.retention.ms"
    ),
    _int("segment.bytes", 1_073_741_824, "Size of one segment file.", SEGMENT_BYTES_MIN, synonym="log.segment.bytes"),
    ConfigKey(
        "internal.segment.bytes",
        ConfigType.INT,
        None,
        "Size of one segment file, however small: for tests.",
        whole(1, INT_MAX),
        internal=True,
    ),
    _int("segment.index.bytes", 10_485_760, "Size of one index file.", 4, synonym="log.index.size.max.bytes"),
    _long(
        "segment.jitter.ms",
        0,
        "Accepted for Kafka's sake; segments roll exactly at segment.ms.",
        synonym="log.roll.jitter.ms",
        kept=True,
    ),
    _long(
        "segment.ms", 604_800_000, "Age at which a segment is closed even if it is not full.", 1, synonym="log.roll.ms"
    ),
    ConfigKey(
        "leader.replication.throttled.replicas",
        ConfigType.LIST,
        "",
        "Replicas that a leader feeds no faster than its broker's rate: PARTITION:BROKER, or * for all.",
        throttled_replicas,
    ),
    ConfigKey(
        "follower.replication.throttled.replicas",
        ConfigType.LIST,
        "",
        "Replicas that catch up no faster than their broker's rate: PARTITION:BROKER, or * for all.",
        throttled_replicas,
    ),
    _flag(
        "unclean.leader.election.enable",
        False,
        "Whether a replica that is not in sync may lead, losing records.",
        synonym="unclean.leader.election.enable",
    ),
)


MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS

FALLBACKS = {
    "log.retention.ms": (Fallback("log.retention.minutes", MINUTE_MS), Fallback("log.retention.hours", HOUR_MS)),
    "log.roll.ms": (Fallback("log.roll.hours", HOUR_MS),),
    "log.roll.jitter.ms": (Fallback("log.roll.jitter.hours", HOUR_MS),),
    "log.flush.interval.ms": (Fallback("log.flush.scheduler.interval.ms", 1),),
}
"""Kafka's order: milliseconds before minutes before hours, wherever they are set."""


def _defaults_of_topics() -> list[ConfigKey]:
    return [_default_of_topics(key.synonym, key) for key in TOPIC_KEYS.values() if key.synonym is not None]


def _default_of_topics(name: str, key: ConfigKey) -> ConfigKey:
    fallbacks = FALLBACKS.get(name, ())
    default = None if fallbacks else key.default
    return ConfigKey(
        name, key.type, default, key.doc, key.check, scope=Scope.CLUSTER_WIDE, fallbacks=fallbacks, kept=key.kept
    )


BROKER_KEYS = _by_name(
    *_defaults_of_topics(),
    ConfigKey(
        "log.retention.minutes",
        ConfigType.INT,
        None,
        "log.retention.ms in minutes, where that is not set.",
        unlimited_or(1, INT_MAX),
    ),
    ConfigKey(
        "log.retention.hours",
        ConfigType.INT,
        "168",
        "log.retention.ms in hours, where minutes are not set.",
        unlimited_or(1, INT_MAX),
    ),
    _int("log.roll.hours", 168, "log.roll.ms in hours, where that is not set.", 1),
    _int("log.roll.jitter.hours", 0, "log.roll.jitter.ms in hours, where that is not set.", kept=True),
    _long("log.flush.scheduler.interval.ms", LONG_MAX, "log.flush.interval.ms, where that is not set."),
    _int("node.id", 1, "This node's id: its `node_id`."),
    _int("broker.id", 1, "This node's id, by its older name: its `node_id`."),
    ConfigKey(
        "listeners", ConfigType.LIST, "", "Where this node listens: NAME://HOST:PORT, …; or `kafka`, for one.", anything
    ),
    ConfigKey(
        "advertised.listeners",
        ConfigType.LIST,
        "",
        "Where clients of each listener are told to connect: NAME://HOST:PORT, …; or `advertised`, for one.",
        anything,
    ),
    _text(
        "listener.security.protocol.map",
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "What each listener speaks: NAME:PROTOCOL, …; of protocols there is PLAINTEXT so far.",
    ),
    ConfigKey(
        "inter.broker.listener.name",
        ConfigType.STRING,
        None,
        "The listener whose address stands for the node; unless it is set, the first one.",
        anything,
    ),
    ConfigKey("log.dirs", ConfigType.LIST, "", "The data folder: its `data_dir`.", anything),
    ConfigKey("broker.rack", ConfigType.STRING, None, "The rack that this node stands in: its `rack`.", anything),
    _int("num.partitions", 1, "Partitions of a topic that is created without saying how many.", 1),
    _int("default.replication.factor", 1, "Replicas of a topic that is created without saying how many.", 1, 32767),
    _flag("auto.create.topics.enable", True, "Whether asking for an unknown topic creates it."),
    _flag("delete.topic.enable", True, "Whether topics can be deleted."),
    _flag("auto.leader.rebalance.enable", True, "Whether preferred leaders are given their partitions back."),
    _long("leader.imbalance.check.interval.seconds", 300, "How often it is checked who leads what.", 1),
    _int("leader.imbalance.per.broker.percentage", 10, "Share of its partitions that a broker may not lead.", 0, 100),
    _long(
        "leader.replication.throttled.rate",
        LONG_MAX,
        "Bytes a second for throttled replicas that it leads.",
        0,
        scope=Scope.CLUSTER_WIDE,
    ),
    _long(
        "follower.replication.throttled.rate",
        LONG_MAX,
        "Bytes a second for throttled replicas that it follows.",
        0,
        scope=Scope.CLUSTER_WIDE,
    ),
    _int("group.min.session.timeout.ms", 6_000, "The shortest session timeout that a member may ask for."),
    _int("group.max.session.timeout.ms", 1_800_000, "The longest session timeout that a member may ask for."),
    _int("group.initial.rebalance.delay.ms", 0, "How long a new group waits for more members."),
    _int("group.max.size", 10_000, "How many members one group may have.", 1),
    _int("offset.metadata.max.bytes", 4096, "How much text may be stored with a committed offset."),
    _int("offsets.retention.minutes", 10_080, "How long offsets of an empty group are kept.", 1),
    _long("offsets.retention.check.interval.ms", 600_000, "How often expired offsets are looked for.", 1),
    _int("offsets.topic.num.partitions", 50, "Partitions of __consumer_offsets, of a node alone; of a cluster 50.", 1),
    ConfigKey(
        "offsets.topic.replication.factor",
        ConfigType.SHORT,
        "1",
        "Replicas of __consumer_offsets; in a cluster its `replication_factor`.",
        whole(1, 32767),
    ),
    _int(
        "producer.id.expiration.ms",
        86_400_000,
        "How long the state of a silent idempotent producer is kept.",
        1,
        scope=Scope.CLUSTER_WIDE,
    ),
    _long("connections.max.idle.ms", 600_000, "After this time an idle connection is closed.", 1),
    _int("max.connections", 10_000, "How many connections may be open at once.", 1, scope=Scope.CLUSTER_WIDE),
    _int("socket.request.max.bytes", 104_857_600, "The largest request that is accepted.", 1),
    _int("fetch.max.bytes", 57_671_680, "The largest fetch response.", 1024),
    _int("max.incremental.fetch.session.cache.slots", 1000, "Incremental fetch sessions that are kept."),
    _long("replica.lag.time.max.ms", 10_000, "A follower that has not had everything for so long is not in sync.", 1),
    _long("log.retention.check.interval.ms", 300_000, "How often it is checked what is to be deleted or compacted.", 1),
    _flag("log.cleaner.enable", True, "Whether compacted topics are compacted."),
    _long(
        "log.cleaner.backoff.ms",
        15_000,
        "How long the cleaner rests when there was nothing to compact.",
        scope=Scope.CLUSTER_WIDE,
    ),
)
