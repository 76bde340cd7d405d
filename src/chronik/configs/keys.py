"""The configs of topics and brokers that Chronik supports: types, defaults, documentation and validators.

`ignored_keys` has the broker configs of Kafka that have no effect. An unknown topic config is rejected with
INVALID_CONFIG.
"""

from __future__ import annotations

from msgspec.structs import replace

from chronik.configs.key_types import ConfigKey as ConfigKey
from chronik.configs.key_types import ConfigType as ConfigType
from chronik.configs.key_types import UnitFallback as UnitFallback
from chronik.configs.key_types import UpdateMode as UpdateMode
from chronik.configs.key_types import boolean_key as _flag
from chronik.configs.key_types import int_key as _int
from chronik.configs.key_types import list_key as _list
from chronik.configs.key_types import long_key as _long
from chronik.configs.key_types import string_key as _text
from chronik.configs.sasl_keys import SASL_KEYS
from chronik.configs.validators import (
    INT_MAX,
    LONG_MAX,
    integer_in_range,
    integer_or_unlimited,
    list_of,
    number_in_range,
    one_of,
    one_of_or_empty,
    validate_address_counts,
    validate_principals,
    validate_throttled_replicas,
)


def _by_name(*keys: ConfigKey) -> dict[str, ConfigKey]:
    return {key.name: key for key in keys}


def _topic_keys(*keys: ConfigKey) -> dict[str, ConfigKey]:
    return _by_name(*(replace(key, synonym=SYNONYMS.get(key.name)) for key in keys))


COMPRESSION_TYPES = ("uncompressed", "gzip", "snappy", "lz4", "zstd", "producer")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")

SEGMENT_BYTES_MIN = 1 << 20
"""Kafka's minimum since 4.1, because each segment needs two open files.

Smaller values of existing topics remain valid.
"""

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
"""The broker keys that supply the defaults of topic keys."""

TOPIC_KEYS = _topic_keys(
    _list(
        "cleanup.policy",
        "delete",
        "Whether old segments are deleted, compacted, both or neither.",
        list_of("delete", "compact"),
    ),
    _flag("columnar.enabled", False, "Whether pipelines without a list of topics land this topic in a table."),
    _text(
        "columnar.format",
        "",
        'Whether the table has bytes ("raw") or JSON fields ("json"); empty for the default of the pipeline.',
        one_of_or_empty("raw", "json"),
    ),
    _text(
        "columnar.partition.by",
        "",
        "How the table is partitioned; empty for the default of the pipeline.",
        one_of_or_empty("date", "hour", "none"),
    ),
    _text(
        "compression.type",
        "producer",
        'The compression of stored batches; "producer" keeps that of the producer.',
        one_of(*COMPRESSION_TYPES),
    ),
    _int("compression.gzip.level", -1, "The gzip level if the broker compresses.", -1, 9),
    _int("compression.lz4.level", 9, "The lz4 level if the broker compresses.", 1, 17),
    _int("compression.zstd.level", 3, "The zstd level if the broker compresses.", -131072, 22),
    _long("delete.retention.ms", 86_400_000, "How long a compacted topic retains tombstones."),
    _long("file.delete.delay.ms", 60_000, "The delay before the file of a deleted segment is removed."),
    _long("flush.messages", LONG_MAX, 'Sync after this number of records if `flush` is "os".', 1),
    _long("flush.ms", LONG_MAX, 'Sync after this time if `flush` is "os".'),
    _int("index.interval.bytes", 4096, "The number of log bytes between two index entries."),
    _long("max.compaction.lag.ms", LONG_MAX, "The maximum time a record stays uncompacted.", 1),
    _int("max.message.bytes", 1_048_588, "The maximum size of a record batch."),
    _long("message.timestamp.after.max.ms", 3_600_000, "How far a record's timestamp may be in the future."),
    _long("message.timestamp.before.max.ms", LONG_MAX, "How far a record's timestamp may be in the past."),
    _text(
        "message.timestamp.type",
        "CreateTime",
        "Whether records keep the producer's timestamp or get the broker's.",
        one_of(*TIMESTAMP_TYPES),
    ),
    ConfigKey(
        "min.cleanable.dirty.ratio",
        ConfigType.DOUBLE,
        "0.5",
        "The uncompacted fraction of the log that triggers compaction.",
        number_in_range(0, 1),
    ),
    _long("min.compaction.lag.ms", 0, "The minimum time a record stays uncompacted."),
    _int("min.insync.replicas", 1, "The number of in-sync replicas required for acks=all.", 1),
    _long("local.retention.bytes", -2, "Accepted for compatibility; there is no tiered storage.", -2, kept=True),
    _long("local.retention.ms", -2, "Accepted for compatibility; there is no tiered storage.", -2, kept=True),
    _flag("preallocate", False, "Accepted for compatibility; files grow as they are written.", kept=True),
    _flag("remote.log.copy.disable", False, "Accepted for compatibility; there is no tiered storage.", kept=True),
    _flag("remote.log.delete.on.disable", False, "Accepted for compatibility; there is no tiered storage.", kept=True),
    ConfigKey(
        "remote.storage.enable",
        ConfigType.BOOLEAN,
        "false",
        "Always false; there is no tiered storage.",
        one_of("false"),
        kept=True,
    ),
    _long(
        "retention.bytes", -1, "The size above which a partition's oldest segments are deleted; -1 for no limit.", -1
    ),
    _long("retention.ms", 604_800_000, "The age at which segments are deleted; -1 for no limit.", -1),
    _int("segment.bytes", 1_073_741_824, "The maximum size of a segment file.", SEGMENT_BYTES_MIN),
    ConfigKey(
        "internal.segment.bytes",
        ConfigType.INT,
        None,
        "The maximum size of a segment file, without a lower bound: for tests.",
        integer_in_range(1, INT_MAX),
        internal=True,
    ),
    _int("segment.index.bytes", 10_485_760, "The maximum size of an index file.", 4),
    _long("segment.jitter.ms", 0, "Accepted for compatibility; segments roll exactly at segment.ms.", kept=True),
    _long("segment.ms", 604_800_000, "The age at which a segment is rolled even if it is not full.", 1),
    _list(
        "leader.replication.throttled.replicas",
        "",
        "Replicas whose replication the leader throttles: PARTITION:BROKER, or * for all.",
        validate_throttled_replicas,
    ),
    _list(
        "follower.replication.throttled.replicas",
        "",
        "Replicas whose replication the follower throttles: PARTITION:BROKER, or * for all.",
        validate_throttled_replicas,
    ),
    _flag(
        "unclean.leader.election.enable",
        False,
        "Whether a replica outside the ISR may become leader, which may lose records.",
    ),
)


MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS

FALLBACKS = {
    "log.retention.ms": (
        UnitFallback("log.retention.minutes", MINUTE_MS),
        UnitFallback("log.retention.hours", HOUR_MS),
    ),
    "log.roll.ms": (UnitFallback("log.roll.hours", HOUR_MS),),
    "log.roll.jitter.ms": (UnitFallback("log.roll.jitter.hours", HOUR_MS),),
    "log.flush.interval.ms": (UnitFallback("log.flush.scheduler.interval.ms", 1),),
}
"""Keys in other units by precedence, as in Kafka: milliseconds before minutes before hours."""


def _topic_default_keys() -> list[ConfigKey]:
    return [_topic_default_key(key.synonym, key) for key in TOPIC_KEYS.values() if key.synonym is not None]


def _topic_default_key(name: str, key: ConfigKey) -> ConfigKey:
    fallbacks = FALLBACKS.get(name, ())
    default = None if fallbacks else key.default
    return ConfigKey(
        name, key.type, default, key.doc, key.check, scope=UpdateMode.CLUSTER_WIDE, fallbacks=fallbacks, kept=key.kept
    )


BROKER_KEYS = _by_name(
    *_topic_default_keys(),
    ConfigKey(
        "log.retention.minutes",
        ConfigType.INT,
        None,
        "log.retention.ms in minutes, if that is not set.",
        integer_or_unlimited(1, INT_MAX),
    ),
    ConfigKey(
        "log.retention.hours",
        ConfigType.INT,
        "168",
        "log.retention.ms in hours, if the minutes are not set either.",
        integer_or_unlimited(1, INT_MAX),
    ),
    _int("log.roll.hours", 168, "log.roll.ms in hours, if that is not set.", 1),
    _int("log.roll.jitter.hours", 0, "log.roll.jitter.ms in hours, if that is not set.", kept=True),
    _long("log.flush.scheduler.interval.ms", LONG_MAX, "The default of log.flush.interval.ms."),
    _int("node.id", 1, "The id of the node; set as `node_id`."),
    _int("broker.id", 1, "The older name of node.id; set as `node_id`."),
    _list(
        "listeners",
        "",
        "The addresses on which the node listens: NAME://HOST:PORT, …; set as `kafka` for a single one.",
    ),
    _list(
        "advertised.listeners",
        "",
        "The advertised address of each listener: NAME://HOST:PORT, …; set as `advertised` for a single one.",
    ),
    _text(
        "listener.security.protocol.map",
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "The protocol of each listener: NAME:PROTOCOL, …, with PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
    ),
    *SASL_KEYS,
    _text(
        "inter.broker.listener.name",
        None,
        "The listener whose address identifies the node; the first one if it is not set.",
    ),
    _list("log.dirs", "", "The data directory; set as `data_dir`."),
    _text("broker.rack", None, "The rack of the node; set as `rack`."),
    _int("num.partitions", 1, "The default number of partitions of a new topic.", 1),
    _int("default.replication.factor", 1, "The default replication factor of a new topic.", 1, 32767),
    _flag("auto.create.topics.enable", True, "Whether a Metadata request for an unknown topic creates it."),
    _flag("delete.topic.enable", True, "Whether topics can be deleted."),
    _flag("auto.leader.rebalance.enable", True, "Whether leadership is moved back to the preferred leaders."),
    _long("leader.imbalance.check.interval.seconds", 300, "The interval at which the leader imbalance is checked.", 1),
    _int(
        "leader.imbalance.per.broker.percentage",
        10,
        "The tolerated percentage of partitions not led by the preferred leader.",
        0,
        100,
    ),
    _long(
        "leader.replication.throttled.rate",
        LONG_MAX,
        "The replication quota of throttled leader replicas in bytes per second.",
        0,
        scope=UpdateMode.CLUSTER_WIDE,
    ),
    _long(
        "follower.replication.throttled.rate",
        LONG_MAX,
        "The replication quota of throttled follower replicas in bytes per second.",
        0,
        scope=UpdateMode.CLUSTER_WIDE,
    ),
    _int("group.min.session.timeout.ms", 6_000, "The minimum session timeout of group members."),
    _int("group.max.session.timeout.ms", 1_800_000, "The maximum session timeout of group members."),
    _int(
        "group.initial.rebalance.delay.ms", 0, "How long a new group waits for more members before the first rebalance."
    ),
    _int("group.max.size", 10_000, "The maximum number of members of a group.", 1),
    _int("offset.metadata.max.bytes", 4096, "The maximum size of the metadata of a committed offset."),
    _int("offsets.retention.minutes", 10_080, "How long the committed offsets of an empty group are retained.", 1),
    _long("offsets.retention.check.interval.ms", 600_000, "The interval at which expired offsets are removed.", 1),
    _int(
        "offsets.topic.num.partitions",
        50,
        "The partitions of __consumer_offsets on a standalone node; a cluster has 50.",
        1,
    ),
    ConfigKey(
        "offsets.topic.replication.factor",
        ConfigType.SHORT,
        "1",
        "The replication factor of __consumer_offsets; set as `replication_factor` in a cluster.",
        integer_in_range(1, 32767),
    ),
    _int(
        "producer.id.expiration.ms",
        86_400_000,
        "How long the state of an inactive idempotent producer is retained.",
        1,
        scope=UpdateMode.CLUSTER_WIDE,
    ),
    _int("transaction.max.timeout.ms", 900_000, "The maximum transaction timeout of producers.", 1),
    _int("transactional.id.expiration.ms", 604_800_000, "How long an unused transactional id is retained.", 1),
    _int(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3_600_000,
        "The interval at which expired transactional ids are removed.",
        1,
    ),
    _long("connections.max.idle.ms", 600_000, "The time after which an idle connection is closed.", 1),
    _int("max.connections", 10_000, "The maximum number of open connections.", 1, scope=UpdateMode.CLUSTER_WIDE),
    _int(
        "max.connections.per.ip",
        INT_MAX,
        "The maximum number of open connections per client address.",
        0,
        scope=UpdateMode.CLUSTER_WIDE,
    ),
    _text(
        "max.connections.per.ip.overrides",
        "",
        "The maximum number of open connections for specific addresses: ADDRESS:COUNT, ADDRESS:COUNT.",
        validate_address_counts,
        scope=UpdateMode.CLUSTER_WIDE,
    ),
    _int(
        "max.connection.creation.rate",
        INT_MAX,
        "The maximum number of new connections per second.",
        0,
        scope=UpdateMode.CLUSTER_WIDE,
    ),
    _int("socket.request.max.bytes", 104_857_600, "The maximum size of a request.", 1),
    _int("fetch.max.bytes", 57_671_680, "The maximum size of a fetch response.", 1024),
    _int("max.incremental.fetch.session.cache.slots", 1000, "The maximum number of incremental fetch sessions."),
    _text(
        "authorizer.class.name",
        "",
        'The authorizer: "standard", or Kafka\'s class name of it; empty to allow everything.',
        one_of_or_empty("standard", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
    ),
    _text(
        "super.users",
        "",
        "Principals that are allowed everything regardless of ACLs: User:NAME;User:NAME.",
        validate_principals,
    ),
    _flag("allow.everyone.if.no.acl.found", False, "Whether everyone may access resources without ACLs."),
    _int(
        "chronik.metrics.series.max",
        20_000,
        "The maximum number of series in /metrics; the smallest topics and groups are aggregated.",
        scope=UpdateMode.CLUSTER_WIDE,
    ),
    _long("replica.lag.time.max.ms", 10_000, "The time after which a lagging follower is removed from the ISR.", 1),
    _long(
        "log.retention.check.interval.ms",
        300_000,
        "The interval at which logs are checked for deletion and compaction.",
        1,
    ),
    _flag("log.cleaner.enable", True, "Whether the log cleaner compacts topics."),
    _long(
        "log.cleaner.backoff.ms",
        15_000,
        "The pause of the log cleaner after it found nothing to compact.",
        scope=UpdateMode.CLUSTER_WIDE,
    ),
)
