"""Kafka's configuration keys that Chronik knows: types, defaults and what is a legal value. Data, and no more.

A key that is not here is refused (INVALID_CONFIG) rather than stored and ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1


class ConfigType(IntEnum):
    """As DescribeConfigs names them."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


class Scope(IntEnum):
    """Where a broker key may be changed while the node runs."""

    READ_ONLY = 0
    PER_BROKER = 1
    CLUSTER_WIDE = 2


Check = Callable[[str], str | None]
"""What is wrong with a value, or None."""


@dataclass(frozen=True, slots=True)
class ConfigKey:
    name: str
    type: ConfigType
    default: str
    doc: str
    check: Check
    synonym: str | None = None
    """For a topic key: the broker key that gives its default."""
    scope: Scope = Scope.READ_ONLY


_WHOLE = re.compile(r"\s*[+-]?[0-9]{1,20}\s*")  # Python would also take 1_000, and the digits of every script


def _whole(low: int, high: int) -> Check:
    def check(value: str) -> str | None:
        if not _WHOLE.fullmatch(value):
            return "a whole number"
        return None if low <= int(value) <= high else f"a whole number from {low} to {high}"

    return check


def _fraction(value: str) -> str | None:
    try:
        number = float(value)
    except ValueError:
        return "a number from 0 to 1"
    return None if 0 <= number <= 1 else "a number from 0 to 1"


def _choice(*choices: str) -> Check:
    return lambda value: None if value in choices else "one of " + ", ".join(choices)


def _choice_or_none(*choices: str) -> Check:
    return lambda value: None if value in ("", *choices) else f"one of {', '.join(choices)}, or empty"


def _choices(*choices: str) -> Check:
    """None of them is a choice too, and one given twice counts once, as in Kafka."""

    def check(value: str) -> str | None:
        given = [part.strip() for part in value.split(",")] if value.strip() else []
        return None if all(part in choices for part in given) else "a list of " + ", ".join(choices)

    return check


def _throttled_replicas(value: str) -> str | None:
    given = [part.strip() for part in value.split(",")]
    legal = value.strip() == "*" or all(re.fullmatch(r"([0-9]+:[0-9]+)?", part) for part in given)
    return None if legal else "* or a list of PARTITION:BROKER"


def _anything(value: str) -> str | None:
    return None


def _boolean(value: str) -> str | None:
    return None if value.strip().lower() in ("true", "false") else "true or false"


def _int(name: str, default: int, doc: str, low: int = 0, high: int = INT_MAX, **more: object) -> ConfigKey:
    return ConfigKey(name, ConfigType.INT, str(default), doc, _whole(low, high), **more)  # type: ignore[arg-type]


def _long(name: str, default: int, doc: str, low: int = 0, high: int = LONG_MAX, **more: object) -> ConfigKey:
    return ConfigKey(name, ConfigType.LONG, str(default), doc, _whole(low, high), **more)  # type: ignore[arg-type]


def _flag(name: str, default: bool, doc: str, **more: object) -> ConfigKey:
    text = "true" if default else "false"
    return ConfigKey(name, ConfigType.BOOLEAN, text, doc, _boolean, **more)  # type: ignore[arg-type]


def _text(name: str, default: str, doc: str, check: Check = _anything, **more: object) -> ConfigKey:
    return ConfigKey(name, ConfigType.STRING, default, doc, check, **more)  # type: ignore[arg-type]


def _by_name(*keys: ConfigKey) -> dict[str, ConfigKey]:
    return {key.name: key for key in keys}


COMPRESSION_TYPES = ("uncompressed", "gzip", "snappy", "lz4", "zstd", "producer")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")

TOPIC_KEYS = _by_name(
    ConfigKey("cleanup.policy", ConfigType.LIST, "delete", "Whether old segments are deleted, compacted, both or kept.",
              _choices("delete", "compact"), "log.cleanup.policy"),
    _flag("columnar.enabled", False, "Whether pipelines that are told no topics land this one in a table."),
    _text("columnar.format", "", "Whether its table has bytes (\"raw\") or fields (\"json\"); empty: as pipelines say.",
          _choice_or_none("raw", "json")),
    _text("columnar.partition.by", "", "How its table is partitioned; empty: as pipelines say.",
          _choice_or_none("date", "hour", "none")),
    _text("compression.type", "producer", "How batches are stored; \"producer\" keeps them as they came.",
          _choice(*COMPRESSION_TYPES), synonym="compression.type"),
    _int("compression.gzip.level", -1, "Level for gzip, if the broker compresses.", -1, 9,
         synonym="compression.gzip.level"),
    _int("compression.lz4.level", 9, "Level for lz4, if the broker compresses.", 1, 17,
         synonym="compression.lz4.level"),
    _int("compression.zstd.level", 3, "Level for zstd, if the broker compresses.", -131072, 22,
         synonym="compression.zstd.level"),
    _long("delete.retention.ms", 86_400_000, "How long a tombstone stays in a compacted topic.",
          synonym="log.cleaner.delete.retention.ms"),
    _long("file.delete.delay.ms", 60_000, "How long a deleted segment's file stays on disk.",
          synonym="log.segment.delete.delay.ms"),
    _long("flush.messages", LONG_MAX, "Sync after this many records, if `flush` is \"os\".", 1,
          synonym="log.flush.interval.messages"),
    _long("flush.ms", LONG_MAX, "Sync after this time, if `flush` is \"os\".", synonym="log.flush.interval.ms"),
    _int("index.interval.bytes", 4096, "Bytes of log between two entries of an index.",
         synonym="log.index.interval.bytes"),
    _long("max.compaction.lag.ms", LONG_MAX, "A record is compacted at the latest after this time.", 1,
          synonym="log.cleaner.max.compaction.lag.ms"),
    _int("max.message.bytes", 1_048_588, "The largest batch that is accepted.", synonym="message.max.bytes"),
    _long("message.timestamp.after.max.ms", 3_600_000, "How far a record's time may lie in the future.",
          synonym="log.message.timestamp.after.max.ms"),
    _long("message.timestamp.before.max.ms", LONG_MAX, "How far a record's time may lie in the past.",
          synonym="log.message.timestamp.before.max.ms"),
    _text("message.timestamp.type", "CreateTime", "Whether records keep the producer's time or get the broker's.",
          _choice(*TIMESTAMP_TYPES), synonym="log.message.timestamp.type"),
    ConfigKey("min.cleanable.dirty.ratio", ConfigType.DOUBLE, "0.5", "Share of uncompacted log that starts compaction.",
              _fraction, "log.cleaner.min.cleanable.ratio"),
    _long("min.compaction.lag.ms", 0, "A record is not compacted before this time.",
          synonym="log.cleaner.min.compaction.lag.ms"),
    _int("min.insync.replicas", 1, "Replicas that must be in sync for acks=all.", 1, synonym="min.insync.replicas"),
    _flag("preallocate", False, "Accepted for Kafka's sake; files grow as they are written.",
          synonym="log.preallocate"),
    _long("retention.bytes", -1, "Size from which a partition's oldest segments are deleted; -1 for none.", -1,
          synonym="log.retention.bytes"),
    _long("retention.ms", 604_800_000, "Age from which segments are deleted; -1 for none.", -1,
          synonym="log.retention.ms"),
    _int("segment.bytes", 1_073_741_824, "Size of one segment file.", 14, synonym="log.segment.bytes"),
    _int("segment.index.bytes", 10_485_760, "Size of one index file.", 4, synonym="log.index.size.max.bytes"),
    _long("segment.jitter.ms", 0, "Accepted for Kafka's sake; segments roll exactly at segment.ms.",
          synonym="log.roll.jitter.ms"),
    _long("segment.ms", 604_800_000, "Age at which a segment is closed even if it is not full.", 1,
          synonym="log.roll.ms"),
    ConfigKey("leader.replication.throttled.replicas", ConfigType.LIST, "",
              "Replicas that a leader feeds no faster than its broker's rate: PARTITION:BROKER, or * for all.",
              _throttled_replicas),
    ConfigKey("follower.replication.throttled.replicas", ConfigType.LIST, "",
              "Replicas that catch up no faster than their broker's rate: PARTITION:BROKER, or * for all.",
              _throttled_replicas),
    _flag("unclean.leader.election.enable", False, "Whether a replica that is not in sync may lead, losing records.",
          synonym="unclean.leader.election.enable"),
)


def _defaults_of_topics() -> list[ConfigKey]:
    return [
        ConfigKey(key.synonym, key.type, key.default, key.doc, key.check, scope=Scope.CLUSTER_WIDE)
        for key in TOPIC_KEYS.values()
        if key.synonym is not None
    ]


BROKER_KEYS = _by_name(
    *_defaults_of_topics(),
    _int("node.id", 1, "This node's id."),
    _int("broker.id", 1, "This node's id, by its older name."),
    ConfigKey("listeners", ConfigType.LIST, "", "Where this node listens.", _anything),
    ConfigKey("advertised.listeners", ConfigType.LIST, "", "Where clients are told to connect.", _anything),
    ConfigKey("log.dirs", ConfigType.LIST, "", "The data folder.", _anything),
    _text("broker.rack", "", "The rack that this node stands in."),
    _int("num.partitions", 1, "Partitions of a topic that is created without saying how many.", 1,
         scope=Scope.CLUSTER_WIDE),
    _int("default.replication.factor", 1, "Replicas of a topic that is created without saying how many.", 1, 32767,
         scope=Scope.CLUSTER_WIDE),
    _flag("auto.create.topics.enable", True, "Whether asking for an unknown topic creates it.",
          scope=Scope.CLUSTER_WIDE),
    _flag("delete.topic.enable", True, "Whether topics can be deleted."),
    _flag("auto.leader.rebalance.enable", True, "Whether preferred leaders are given their partitions back."),
    _long("leader.imbalance.check.interval.seconds", 300, "How often it is looked who leads what.", 1),
    _int("leader.imbalance.per.broker.percentage", 10, "Share of its partitions that a broker may not lead.", 0, 100),
    _long("leader.replication.throttled.rate", LONG_MAX, "Bytes a second for throttled replicas that it leads.", 0,
          scope=Scope.CLUSTER_WIDE),
    _long("follower.replication.throttled.rate", LONG_MAX, "Bytes a second for throttled replicas that it follows.", 0,
          scope=Scope.CLUSTER_WIDE),
    _int("group.min.session.timeout.ms", 6_000, "The shortest session timeout that a member may ask for."),
    _int("group.max.session.timeout.ms", 1_800_000, "The longest session timeout that a member may ask for."),
    _int("group.initial.rebalance.delay.ms", 0, "How long a new group waits for more members."),
    _int("group.max.size", 10_000, "Members of one group.", 1),
    _int("offset.metadata.max.bytes", 4096, "Text that may be stored with a committed offset."),
    _int("offsets.retention.minutes", 10_080, "How long offsets of an empty group are kept.", 1),
    _long("offsets.retention.check.interval.ms", 600_000, "How often expired offsets are looked for.", 1),
    _int("offsets.topic.num.partitions", 50, "Partitions of __consumer_offsets.", 1),
    _int("offsets.topic.replication.factor", 1, "Replicas of __consumer_offsets.", 1, 32767),
    _int("producer.id.expiration.ms", 86_400_000, "How long the state of a silent idempotent producer is kept.", 1,
         scope=Scope.CLUSTER_WIDE),
    _long("connections.max.idle.ms", 600_000, "After this time an idle connection is closed.", 1),
    _int("max.connections", 10_000, "Connections that are open at once.", 1),
    _int("socket.request.max.bytes", 104_857_600, "The largest request that is accepted.", 1),
    _int("fetch.max.bytes", 57_671_680, "The largest fetch response.", 1024),
    _int("max.incremental.fetch.session.cache.slots", 1000, "Incremental fetch sessions that are kept."),
    _long("replica.lag.time.max.ms", 10_000, "A follower that has not had everything for so long is not in sync.", 1),
    _long("log.retention.check.interval.ms", 300_000, "How often retention and compaction are looked at.", 1),
    _flag("log.cleaner.enable", True, "Whether compacted topics are compacted."),
    _long("log.cleaner.backoff.ms", 15_000, "How long the cleaner rests when there was nothing to compact."),
)
