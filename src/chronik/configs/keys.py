"""Kafka's configuration keys that mean something here: types, defaults and what is a legal value. Data, and no more.

Those of Kafka's that have no effect are in `kept_keys`. A key of a topic that is not here is refused (INVALID_CONFIG)
rather than stored and ignored.
"""

from __future__ import annotations

from msgspec.structs import replace

from chronik.configs.checks import (
    INT_MAX,
    LONG_MAX,
    choice,
    choice_or_none,
    choices,
    connections_by_address,
    number,
    principals,
    throttled_replicas,
    unlimited_or,
    whole,
)
from chronik.configs.kinds import ConfigKey as ConfigKey
from chronik.configs.kinds import ConfigType as ConfigType
from chronik.configs.kinds import Fallback as Fallback
from chronik.configs.kinds import Scope as Scope
from chronik.configs.kinds import flag as _flag
from chronik.configs.kinds import int_ as _int
from chronik.configs.kinds import list_ as _list
from chronik.configs.kinds import long as _long
from chronik.configs.kinds import text as _text
from chronik.configs.sasl_keys import SASL_KEYS


def _by_name(*keys: ConfigKey) -> dict[str, ConfigKey]:
    return {key.name: key for key in keys}


def _topic_keys(*keys: ConfigKey) -> dict[str, ConfigKey]:
    return _by_name(*(replace(key, synonym=SYNONYMS.get(key.name)) for key in keys))


COMPRESSION_TYPES = ("uncompressed", "gzip", "snappy", "lz4", "zstd", "producer")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")

SEGMENT_BYTES_MIN = 1 << 20
"""Kafka's own, since 4.1: each segment is two open files. Smaller values that topics were given before stay."""

SYNONYMS = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.type": "compression.type",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.zstd.level": "compression.zstd.level",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
"""For topic keys: the broker keys that give their defaults."""

TOPIC_KEYS = _topic_keys(
    _list(
        "cleanup.policy",
        "delete",
        "Whether old segments are deleted, compacted, both or kept.",
        choices("delete", "compact"),
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
    ),
    _int("compression.gzip.level", -1, "Level for gzip, if the broker compresses.", -1, 9),
    _int("compression.lz4.level", 9, "Level for lz4, if the broker compresses.", 1, 17),
    _int("compression.zstd.level", 3, "Level for zstd, if the broker compresses.", -131072, 22),
    _long("delete.retention.ms", 86_400_000, "How long a tombstone stays in a compacted topic."),
    _long("file.delete.delay.ms", 60_000, "How long a deleted segment's file stays on disk."),
    _long("flush.messages", LONG_MAX, 'Sync after this many records, if `flush` is "os".', 1),
    _long("flush.ms", LONG_MAX, 'Sync after this time, if `flush` is "os".'),
    _int("index.interval.bytes", 4096, "Bytes of log between two entries of an index."),
    _long("max.compaction.lag.ms", LONG_MAX, "A record is compacted at the latest after this time.", 1),
    _int("max.message.bytes", 1_048_588, "The largest batch that is accepted."),
    _long("message.timestamp.after.max.ms", 3_600_000, "How far a record's time may lie in the future."),
    _long("message.timestamp.before.max.ms", LONG_MAX, "How far a record's time may lie in the past."),
    _text(
        "message.timestamp.type",
        "CreateTime",
        "Whether records keep the producer's time or get the broker's.",
        choice(*TIMESTAMP_TYPES),
    ),
    ConfigKey(
        "min.cleanable.dirty.ratio",
        ConfigType.DOUBLE,
        "0.5",
        "Share of uncompacted log that starts compaction.",
        number(0, 1),
    ),
    _long("min.compaction.lag.ms", 0, "A record is not compacted before this time."),
    _int("min.insync.replicas", 1, "Replicas that must be in sync for acks=all.", 1),
    _long("local.retention.bytes", -2, "Accepted for Kafka's sake; there is no tiered storage.", -2, kept=True),
    _long("local.retention.ms", -2, "Accepted for Kafka's sake; there is no tiered storage.", -2, kept=True),
    _flag("preallocate", False, "Accepted for Kafka's sake; files grow as they are written.", kept=True),
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
    _long("retention.bytes", -1, "Size from which a partition's oldest segments are deleted; -1 for none.", -1),
    _long("retention.ms", 604_800_000, "Age from which segments are deleted; -1 for none.", -1),
    _int("segment.bytes", 1_073_741_824, "Size of one segment file.", SEGMENT_BYTES_MIN),
    ConfigKey(
        "internal.segment.bytes",
        ConfigType.INT,
        None,
        "Size of one segment file, however small: for tests.",
        whole(1, INT_MAX),
        internal=True,
    ),
    _int("segment.index.bytes", 10_485_760, "Size of one index file.", 4),
    _long("segment.jitter.ms", 0, "Accepted for Kafka's sake; segments roll exactly at segment.ms.", kept=True),
    _long("segment.ms", 604_800_000, "Age at which a segment is closed even if it is not full.", 1),
    _list(
        "leader.replication.throttled.replicas",
        "",
        "Replicas that a leader feeds no faster than its broker's rate: PARTITION:BROKER, or * for all.",
        throttled_replicas,
    ),
    _list(
        "follower.replication.throttled.replicas",
        "",
        "Replicas that catch up no faster than their broker's rate: PARTITION:BROKER, or * for all.",
        throttled_replicas,
    ),
    _flag("unclean.leader.election.enable", False, "Whether a replica that is not in sync may lead, losing records."),
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
    _list("listeners", "", "Where this node listens: NAME://HOST:PORT, …; or `kafka`, for one."),
    _list(
        "advertised.listeners",
        "",
        "Where clients of each listener are told to connect: NAME://HOST:PORT, …; or `advertised`, for one.",
    ),
    _text(
        "listener.security.protocol.map",
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "What each listener speaks: NAME:PROTOCOL, …, of PLAINTEXT, SSL, SASL_PLAINTEXT and SASL_SSL.",
    ),
    *SASL_KEYS,
    _text(
        "inter.broker.listener.name",
        None,
        "The listener whose address stands for the node; unless it is set, the first one.",
    ),
    _list("log.dirs", "", "The data folder: its `data_dir`."),
    _text("broker.rack", None, "The rack that this node stands in: its `rack`."),
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
    _int("transaction.max.timeout.ms", 900_000, "The longest timeout that a transactional producer may ask for.", 1),
    _int("transactional.id.expiration.ms", 604_800_000, "How long an unused transactional id is kept.", 1),
    _int(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3_600_000,
        "How often transactional ids are looked for that have expired.",
        1,
    ),
    _long("connections.max.idle.ms", 600_000, "After this time an idle connection is closed.", 1),
    _int("max.connections", 10_000, "How many connections may be open at once.", 1, scope=Scope.CLUSTER_WIDE),
    _int("max.connections.per.ip", INT_MAX, "How many may be open from one address.", 0, scope=Scope.CLUSTER_WIDE),
    _text(
        "max.connections.per.ip.overrides",
        "",
        "How many may be open from some addresses: ADDRESS:COUNT for each of them.",
        connections_by_address,
        scope=Scope.CLUSTER_WIDE,
    ),
    _int("max.connection.creation.rate", INT_MAX, "How many may come in a second.", 0, scope=Scope.CLUSTER_WIDE),
    _int("socket.request.max.bytes", 104_857_600, "The largest request that is accepted.", 1),
    _int("fetch.max.bytes", 57_671_680, "The largest fetch response.", 1024),
    _int("max.incremental.fetch.session.cache.slots", 1000, "Incremental fetch sessions that are kept."),
    _text(
        "authorizer.class.name",
        "",
        'Who says what clients may do: "standard", or Kafka\'s name of it; empty: they may do everything.',
        choice_or_none("standard", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
    ),
    _text("super.users", "", "Who may do everything, whatever ACLs say: User:NAME;User:NAME.", principals),
    _flag("allow.everyone.if.no.acl.found", False, "Whether everybody may do what no ACL is about."),
    _int(
        "chronik.metrics.series.max",
        20_000,
        "Series that /metrics tells: of more topics and groups the largest, and the rest in sum.",
        scope=Scope.CLUSTER_WIDE,
    ),
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
