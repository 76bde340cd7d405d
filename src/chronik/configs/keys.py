"""The configs of topics and brokers that Chronik supports: types, defaults, documentation and validators.

`ignored_keys` has the broker configs of Kafka that have no effect. An unknown topic config is rejected with
INVALID_CONFIG.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from chronik.configs.validators import (
    INT_MAX,
    LONG_MAX,
    Validator,
    accept_any_value,
    any_text,
    integer_in_range,
    integer_or_unlimited,
    json_object_or_empty,
    list_of,
    number_in_range,
    one_of,
    one_of_or_empty,
    partitioning_or_empty,
    validate_address_counts,
    validate_boolean,
    validate_principals,
    validate_throttled_replicas,
)

LAG_BUDGET: Final = "chronik.lag.budget"
"""The config of brokers and groups with the lag above which a growing lag is a problem."""


class ConfigType(IntEnum):
    """The type of a config value, with the numeric codes of DescribeConfigs."""

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


class UpdateMode(IntEnum):
    """Kafka's dynamic update mode of a broker config: whether it can be changed without a restart."""

    READ_ONLY = 0
    """Not dynamic: a change requires a restart."""
    PER_BROKER = 1
    """Dynamic, but only for individual brokers."""
    CLUSTER_WIDE = 2
    """Dynamic, for individual brokers or as a cluster-wide default."""


class UnitFallback(NamedTuple):
    """A broker config that supplies another config's value in another unit, as log.retention.hours for
    log.retention.ms.

    The value of this config, multiplied by `unit`, is the value of the original key.
    """

    name: str
    unit: int


class ConfigKey(msgspec.Struct, frozen=True):
    """A configuration key with its type, default and validator."""

    name: str
    type: ConfigType
    default: str | None
    doc: str
    check: Validator
    synonym: str | None = None
    """Name of the broker config that supplies the default of this topic config, or None."""
    update_mode: UpdateMode = UpdateMode.READ_ONLY
    fallbacks: tuple[UnitFallback, ...] = ()
    """Broker configs that supply the value if this config is not set, by precedence."""
    kept: bool = False
    """Whether Chronik accepts the config and returns it in DescribeConfigs, but ignores its value."""
    internal: bool = False
    """Whether DescribeConfigs returns the config only if it has been set."""
    per_listener: bool = False
    """Whether the config can be altered only for one listener, with the prefix `listener.name.NAME.`."""
    secret: bool = False

    @property
    def is_sensitive(self) -> bool:
        """Return whether the value is secret and never returned to clients."""
        return self.secret or self.type is ConfigType.PASSWORD


def define_int_config(
    name: str, default: int, doc: str, low: int = 0, high: int = INT_MAX, **more: object
) -> ConfigKey:
    """Define a Kafka config of type INT."""
    return ConfigKey(name, ConfigType.INT, str(default), doc, integer_in_range(low, high), **more)  # type: ignore[arg-type]


def define_long_config(
    name: str, default: int, doc: str, low: int = 0, high: int = LONG_MAX, **more: object
) -> ConfigKey:
    """Define a Kafka config of type LONG."""
    return ConfigKey(name, ConfigType.LONG, str(default), doc, integer_in_range(low, high), **more)  # type: ignore[arg-type]


def define_boolean_config(name: str, default: bool, doc: str, **more: object) -> ConfigKey:
    """Define a Kafka config of type BOOLEAN."""
    default_text = "true" if default else "false"
    return ConfigKey(name, ConfigType.BOOLEAN, default_text, doc, validate_boolean, **more)  # type: ignore[arg-type]


def define_string_config(
    name: str, default: str | None, doc: str, check: Validator = accept_any_value, **more: object
) -> ConfigKey:
    """Define a Kafka config of type STRING."""
    return ConfigKey(name, ConfigType.STRING, default, doc, check, **more)  # type: ignore[arg-type]


def define_list_config(
    name: str, default: str, doc: str, check: Validator = accept_any_value, **more: object
) -> ConfigKey:
    """Define a Kafka config of type LIST."""
    return ConfigKey(name, ConfigType.LIST, default, doc, check, **more)  # type: ignore[arg-type]


SASL_KEYS: Final = (  # Kafka's SASL configs that Chronik supports
    define_list_config(
        "sasl.enabled.mechanisms",
        "GSSAPI",
        "The mechanisms that SASL listeners accept: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER.",
        update_mode=UpdateMode.PER_BROKER,
    ),
    define_long_config(
        "connections.max.reauth.ms", 0, "The time after which a client must reauthenticate; 0 for never."
    ),
    define_int_config(
        "connection.failed.authentication.delay.ms",
        100,
        "The delay before a failed authentication is reported to the client.",
    ),
    define_string_config(
        "sasl.oauthbearer.jwks.endpoint.url",
        None,
        "The URL of the JWKS that verifies tokens: file://, http:// or https://.",
    ),
    define_long_config(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms", 3_600_000, "The interval at which the JWKS is reloaded.", 1
    ),
    define_long_config(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", 100, "The delay before a failed JWKS reload is retried.", 1
    ),
    define_list_config(
        "sasl.oauthbearer.expected.audience", "", "The audiences that tokens must name; empty for any audience."
    ),
    define_string_config(
        "sasl.oauthbearer.expected.issuer", None, "The issuer that tokens must name; any issuer if it is not set."
    ),
    define_int_config(
        "sasl.oauthbearer.clock.skew.seconds", 30, "The tolerated difference between the clocks of issuer and broker."
    ),
    define_string_config("sasl.oauthbearer.sub.claim.name", "sub", "The claim of a token that contains the user name."),
    define_string_config(
        "sasl.oauthbearer.scope.claim.name", "scope", "The claim of a token that contains its scopes."
    ),
)


def _index_keys_by_name(*keys: ConfigKey) -> dict[str, ConfigKey]:
    return {key.name: key for key in keys}


def _index_topic_keys(*keys: ConfigKey) -> dict[str, ConfigKey]:
    return _index_keys_by_name(*(replace(key, synonym=SYNONYMS.get(key.name)) for key in keys))


COMPRESSION_TYPES = ("uncompressed", "gzip", "snappy", "lz4", "zstd", "producer")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")

SEGMENT_BYTES_MIN = 1 << 20
"""Minimum segment size in bytes, as in Kafka since 4.1, because each segment needs two open files.

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
"""Broker config that supplies the default of each topic config, by topic config name."""

REGISTRY_URL: Final = "confluent.schema.registry.url"

SUBJECT_STRATEGY_PREFIX: Final = "io.confluent.kafka.serializers.subject."
SUBJECT_NAME_STRATEGIES: Final = tuple(
    f"{SUBJECT_STRATEGY_PREFIX}{name}"
    for name in ("TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy")
)
"""The rules for subject names, by the class names that Confluent's serializers and brokers use."""

TOPIC_KEYS = _index_topic_keys(
    define_list_config(
        "cleanup.policy",
        "delete",
        "Whether old segments are deleted, compacted, both or neither.",
        list_of("delete", "compact"),
    ),
    define_boolean_config(
        "columnar.enabled", False, "Whether pipelines without a list of topics land this topic in a table."
    ),
    define_int_config(
        "columnar.file.bytes",
        134_217_728,
        "The target size of the table's files, into which small files are merged.",
        1024,
    ),
    define_string_config(
        "columnar.format",
        "",
        'The format of the values, whose fields are columns of the table unless it is "raw"; "auto" decides from a '
        "sample, and empty uses the default of the pipeline.",
        one_of_or_empty("raw", "json", "avro", "protobuf", "json-schema", "auto"),
    ),
    define_long_config(
        "columnar.history.retention.ms",
        604_800_000,
        "How long old versions of the table and the files that only they contain are kept.",
        3_600_000,
    ),
    define_string_config(
        "columnar.key.format",
        "",
        'The format of the keys, which also become a column unless it is empty or "raw".',
        one_of_or_empty("raw", "json", "avro", "protobuf", "json-schema", "auto"),
    ),
    define_boolean_config(
        "columnar.maintenance.enabled",
        True,
        "Whether pipelines merge small files of the table and delete old versions while they land the topic.",
    ),
    define_string_config(
        "columnar.partition.by",
        "",
        'How the table is partitioned, such as "date" or "day(at), country"; empty for the default of the pipeline.',
        partitioning_or_empty,
    ),
    define_string_config(
        "columnar.schema",
        "",
        "The schema of the table, as JSON; empty to infer it from the records.",
        json_object_or_empty,
    ),
    define_string_config(
        "columnar.table",
        "",
        "The format of the table; empty for the default of the pipeline.",
        one_of_or_empty("delta", "iceberg"),
    ),
    define_string_config(
        "columnar.writer.schema",
        "",
        "The schema of values that do not name a registered schema.",
        any_text,
    ),
    define_string_config(
        "compression.type",
        "producer",
        'The compression of stored batches; "producer" keeps that of the producer.',
        one_of(*COMPRESSION_TYPES),
    ),
    define_boolean_config(
        "confluent.key.schema.validation",
        False,
        "Whether record keys must name a schema that is registered under the topic's subject for keys.",
    ),
    define_string_config(
        "confluent.key.subject.name.strategy",
        f"{SUBJECT_STRATEGY_PREFIX}TopicNameStrategy",
        "The rule for the subject of the schemas of record keys.",
        one_of(*SUBJECT_NAME_STRATEGIES),
    ),
    define_boolean_config(
        "confluent.value.schema.validation",
        False,
        "Whether record values must name a schema that is registered under the topic's subject for values.",
    ),
    define_string_config(
        "confluent.value.subject.name.strategy",
        f"{SUBJECT_STRATEGY_PREFIX}TopicNameStrategy",
        "The rule for the subject of the schemas of record values.",
        one_of(*SUBJECT_NAME_STRATEGIES),
    ),
    define_int_config("compression.gzip.level", -1, "The gzip level if the broker compresses.", -1, 9),
    define_int_config("compression.lz4.level", 9, "The lz4 level if the broker compresses.", 1, 17),
    define_int_config("compression.zstd.level", 3, "The zstd level if the broker compresses.", -131072, 22),
    define_long_config("delete.retention.ms", 86_400_000, "How long a compacted topic retains tombstones."),
    define_long_config("file.delete.delay.ms", 60_000, "The delay before the file of a deleted segment is removed."),
    define_long_config("flush.messages", LONG_MAX, 'Sync after this number of records if `flush` is "os".', 1),
    define_long_config("flush.ms", LONG_MAX, 'Sync after this time if `flush` is "os".'),
    define_int_config("index.interval.bytes", 4096, "The number of log bytes between two index entries."),
    define_long_config("max.compaction.lag.ms", LONG_MAX, "The maximum time a record stays uncompacted.", 1),
    define_int_config("max.message.bytes", 1_048_588, "The maximum size of a record batch."),
    define_long_config(
        "message.timestamp.after.max.ms", 3_600_000, "How far a record's timestamp may be in the future."
    ),
    define_long_config("message.timestamp.before.max.ms", LONG_MAX, "How far a record's timestamp may be in the past."),
    define_string_config(
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
    define_long_config("min.compaction.lag.ms", 0, "The minimum time a record stays uncompacted."),
    define_int_config("min.insync.replicas", 1, "The number of in-sync replicas required for acks=all.", 1),
    define_long_config(
        "local.retention.bytes", -2, "Accepted for compatibility; there is no tiered storage.", -2, kept=True
    ),
    define_long_config(
        "local.retention.ms", -2, "Accepted for compatibility; there is no tiered storage.", -2, kept=True
    ),
    define_boolean_config(
        "preallocate", False, "Accepted for compatibility; files grow as they are written.", kept=True
    ),
    define_boolean_config(
        "remote.log.copy.disable", False, "Accepted for compatibility; there is no tiered storage.", kept=True
    ),
    define_boolean_config(
        "remote.log.delete.on.disable", False, "Accepted for compatibility; there is no tiered storage.", kept=True
    ),
    ConfigKey(
        "remote.storage.enable",
        ConfigType.BOOLEAN,
        "false",
        "Always false; there is no tiered storage.",
        one_of("false"),
        kept=True,
    ),
    define_long_config(
        "retention.bytes", -1, "The size above which a partition's oldest segments are deleted; -1 for no limit.", -1
    ),
    define_long_config("retention.ms", 604_800_000, "The age at which segments are deleted; -1 for no limit.", -1),
    define_int_config("segment.bytes", 1_073_741_824, "The maximum size of a segment file.", SEGMENT_BYTES_MIN),
    ConfigKey(
        "internal.segment.bytes",
        ConfigType.INT,
        None,
        "The maximum size of a segment file, without a lower bound: for tests.",
        integer_in_range(1, INT_MAX),
        internal=True,
    ),
    define_int_config("segment.index.bytes", 10_485_760, "The maximum size of an index file.", 4),
    define_long_config(
        "segment.jitter.ms", 0, "Accepted for compatibility; segments roll exactly at segment.ms.", kept=True
    ),
    define_long_config("segment.ms", 604_800_000, "The age at which a segment is rolled even if it is not full.", 1),
    define_list_config(
        "leader.replication.throttled.replicas",
        "",
        "Replicas whose replication the leader throttles: PARTITION:BROKER, or * for all.",
        validate_throttled_replicas,
    ),
    define_list_config(
        "follower.replication.throttled.replicas",
        "",
        "Replicas whose replication the follower throttles: PARTITION:BROKER, or * for all.",
        validate_throttled_replicas,
    ),
    define_boolean_config(
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
"""Broker configs that supply the value of an unset one, by precedence, as log.retention.hours for log.retention.ms."""


def _list_topic_default_keys() -> list[ConfigKey]:
    return [_find_topic_default_key(key.synonym, key) for key in TOPIC_KEYS.values() if key.synonym is not None]


def _find_topic_default_key(name: str, key: ConfigKey) -> ConfigKey:
    fallbacks = FALLBACKS.get(name, ())
    default = None if fallbacks else key.default
    return ConfigKey(
        name,
        key.type,
        default,
        key.doc,
        key.check,
        update_mode=UpdateMode.CLUSTER_WIDE,
        fallbacks=fallbacks,
        kept=key.kept,
    )


BROKER_KEYS = _index_keys_by_name(
    *_list_topic_default_keys(),
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
    define_int_config("log.roll.hours", 168, "log.roll.ms in hours, if that is not set.", 1),
    define_int_config("log.roll.jitter.hours", 0, "log.roll.jitter.ms in hours, if that is not set.", kept=True),
    define_long_config("log.flush.scheduler.interval.ms", LONG_MAX, "The default of log.flush.interval.ms."),
    define_int_config("node.id", 1, "The id of the node; set as `node_id`."),
    define_int_config("broker.id", 1, "The older name of node.id; set as `node_id`."),
    define_list_config(
        "listeners",
        "",
        "The addresses on which the node listens: NAME://HOST:PORT, …; set as `kafka` for a single one.",
    ),
    define_list_config(
        "advertised.listeners",
        "",
        "The advertised address of each listener: NAME://HOST:PORT, …; set as `advertised` for a single one.",
    ),
    define_list_config(
        REGISTRY_URL,
        "",
        "The URLs of the schema registry for clients that discover it; by default that of the node, unless only this "
        "machine can reach it.",
    ),
    define_string_config(
        "listener.security.protocol.map",
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "The protocol of each listener: NAME:PROTOCOL, …, with PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
    ),
    *SASL_KEYS,
    define_string_config(
        "inter.broker.listener.name",
        None,
        "The listener whose address identifies the node; the first one if it is not set.",
    ),
    define_list_config("log.dirs", "", "The data directory; set as `data_dir`."),
    define_string_config("broker.rack", None, "The rack of the node; set as `rack`."),
    define_int_config("num.partitions", 1, "The default number of partitions of a new topic.", 1),
    define_int_config("default.replication.factor", 1, "The default replication factor of a new topic.", 1, 32767),
    define_boolean_config(
        "auto.create.topics.enable", True, "Whether a Metadata request for an unknown topic creates it."
    ),
    define_boolean_config("delete.topic.enable", True, "Whether topics can be deleted."),
    define_boolean_config(
        "auto.leader.rebalance.enable", True, "Whether leadership is moved back to the preferred leaders."
    ),
    define_long_config(
        "leader.imbalance.check.interval.seconds", 300, "The interval at which the leader imbalance is checked.", 1
    ),
    define_int_config(
        "leader.imbalance.per.broker.percentage",
        10,
        "The tolerated percentage of partitions not led by the preferred leader.",
        0,
        100,
    ),
    define_long_config(
        "leader.replication.throttled.rate",
        LONG_MAX,
        "The replication quota of throttled leader replicas in bytes per second.",
        0,
        update_mode=UpdateMode.CLUSTER_WIDE,
    ),
    define_long_config(
        "follower.replication.throttled.rate",
        LONG_MAX,
        "The replication quota of throttled follower replicas in bytes per second.",
        0,
        update_mode=UpdateMode.CLUSTER_WIDE,
    ),
    define_int_config("group.min.session.timeout.ms", 6_000, "The minimum session timeout of group members."),
    define_int_config("group.max.session.timeout.ms", 1_800_000, "The maximum session timeout of group members."),
    define_int_config(
        "group.initial.rebalance.delay.ms", 0, "How long a new group waits for more members before the first rebalance."
    ),
    define_int_config("group.max.size", 10_000, "The maximum number of members of a group.", 1),
    define_int_config("offset.metadata.max.bytes", 4096, "The maximum size of the metadata of a committed offset."),
    define_int_config(
        "offsets.retention.minutes", 10_080, "How long the committed offsets of an empty group are retained.", 1
    ),
    define_long_config(
        "offsets.retention.check.interval.ms", 600_000, "The interval at which expired offsets are removed.", 1
    ),
    define_int_config(
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
    define_int_config(
        "producer.id.expiration.ms",
        86_400_000,
        "How long the state of an inactive idempotent producer is retained.",
        1,
        update_mode=UpdateMode.CLUSTER_WIDE,
    ),
    define_int_config("transaction.max.timeout.ms", 900_000, "The maximum transaction timeout of producers.", 1),
    define_int_config(
        "transactional.id.expiration.ms", 604_800_000, "How long an unused transactional id is retained.", 1
    ),
    define_int_config(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3_600_000,
        "The interval at which expired transactional ids are removed.",
        1,
    ),
    define_long_config("connections.max.idle.ms", 600_000, "The time after which an idle connection is closed.", 1),
    define_int_config(
        "max.connections", 10_000, "The maximum number of open connections.", 1, update_mode=UpdateMode.CLUSTER_WIDE
    ),
    define_int_config(
        "max.connections.per.ip",
        INT_MAX,
        "The maximum number of open connections per client address.",
        0,
        update_mode=UpdateMode.CLUSTER_WIDE,
    ),
    define_string_config(
        "max.connections.per.ip.overrides",
        "",
        "The maximum number of open connections for specific addresses: ADDRESS:COUNT, ADDRESS:COUNT.",
        validate_address_counts,
        update_mode=UpdateMode.CLUSTER_WIDE,
    ),
    define_int_config(
        "max.connection.creation.rate",
        INT_MAX,
        "The maximum number of new connections per second.",
        0,
        update_mode=UpdateMode.CLUSTER_WIDE,
    ),
    define_int_config("socket.request.max.bytes", 104_857_600, "The maximum size of a request.", 1),
    define_int_config("fetch.max.bytes", 57_671_680, "The maximum size of a fetch response.", 1024),
    define_int_config(
        "max.incremental.fetch.session.cache.slots", 1000, "The maximum number of incremental fetch sessions."
    ),
    define_string_config(
        "authorizer.class.name",
        "",
        'The authorizer: "standard", or Kafka\'s class name of it; empty to allow everything.',
        one_of_or_empty("standard", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
    ),
    define_string_config(
        "super.users",
        "",
        "Principals that are allowed everything regardless of ACLs: User:NAME;User:NAME.",
        validate_principals,
    ),
    define_boolean_config(
        "allow.everyone.if.no.acl.found", False, "Whether everyone may access resources without ACLs."
    ),
    define_long_config(
        LAG_BUDGET,
        10_000,
        "The lag in records above which a growing lag of a group or a pipeline is a problem. Groups can override it.",
        1,
        update_mode=UpdateMode.CLUSTER_WIDE,
    ),
    define_int_config(
        "chronik.metrics.series.max",
        20_000,
        "The maximum number of series in /metrics; the smallest topics and groups are aggregated.",
        update_mode=UpdateMode.CLUSTER_WIDE,
    ),
    define_long_config(
        "replica.lag.time.max.ms", 10_000, "The time after which a lagging follower is removed from the ISR.", 1
    ),
    define_long_config(
        "log.retention.check.interval.ms",
        300_000,
        "The interval at which logs are checked for deletion and compaction.",
        1,
    ),
    define_boolean_config("log.cleaner.enable", True, "Whether the log cleaner compacts topics."),
    define_long_config(
        "log.cleaner.backoff.ms",
        15_000,
        "The pause of the log cleaner after it found nothing to compact.",
        update_mode=UpdateMode.CLUSTER_WIDE,
    ),
)
