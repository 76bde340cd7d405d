"""A topic's configs, turned into what its partitions need to know."""

from __future__ import annotations

from collections.abc import Mapping

from chronik.broker.incoming import IncomingRules
from chronik.configs.resolver import ConfigResolver
from chronik.log.config import LogConfig
from chronik.protocol.compression import Codec

_CODECS = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
_LEVELS = {
    "gzip": "compression.gzip.level",
    "lz4": "compression.lz4.level",
    "zstd": "compression.zstd.level",
}


def log_config(resolver: ConfigResolver, configs: Mapping[str, str]) -> LogConfig:
    return resolver.derived(_log_config, configs)


def incoming_rules(resolver: ConfigResolver, configs: Mapping[str, str]) -> IncomingRules:
    return resolver.derived(_incoming_rules, configs)


def _log_config(resolver: ConfigResolver, configs: Mapping[str, str]) -> LogConfig:
    def number(name: str) -> int:
        return int(resolver.topic(configs, name))

    return LogConfig(
        segment_bytes=number("segment.bytes"),
        segment_ms=number("segment.ms"),
        segment_index_bytes=number("segment.index.bytes"),
        index_interval_bytes=number("index.interval.bytes"),
        retention_ms=number("retention.ms"),
        retention_bytes=number("retention.bytes"),
        cleanup_policy=_policies(resolver, configs),
        delete_retention_ms=number("delete.retention.ms"),
        min_compaction_lag_ms=number("min.compaction.lag.ms"),
        max_compaction_lag_ms=number("max.compaction.lag.ms"),
        min_cleanable_dirty_ratio=float(resolver.topic(configs, "min.cleanable.dirty.ratio")),
        file_delete_delay_ms=number("file.delete.delay.ms"),
        producer_id_expiration_ms=resolver.broker_int("producer.id.expiration.ms"),
    )


def _incoming_rules(resolver: ConfigResolver, configs: Mapping[str, str]) -> IncomingRules:
    compression = resolver.topic(configs, "compression.type")
    level = _LEVELS.get(compression)
    policies = _policies(resolver, configs)
    return IncomingRules(
        max_message_bytes=int(resolver.topic(configs, "max.message.bytes")),
        compacted="compact" in policies,
        deletable="delete" in policies,
        codec=_CODECS[compression],
        codec_level=None if level is None else int(resolver.topic(configs, level)),
        log_append_time=resolver.topic(configs, "message.timestamp.type") == "LogAppendTime",
        timestamp_before_max_ms=int(resolver.topic(configs, "message.timestamp.before.max.ms")),
        timestamp_after_max_ms=int(resolver.topic(configs, "message.timestamp.after.max.ms")),
        min_insync_replicas=int(resolver.topic(configs, "min.insync.replicas")),
    )


def _policies(resolver: ConfigResolver, configs: Mapping[str, str]) -> frozenset[str]:
    return frozenset(part.strip() for part in resolver.topic(configs, "cleanup.policy").split(","))
