"""The conversion of topic configs to the settings of partitions."""

from __future__ import annotations

from collections.abc import Mapping

from chronik.broker.requests.produced_records import ProduceRules, SubjectNameStrategy
from chronik.configs.keys import SUBJECT_STRATEGY_PREFIX
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


def resolve_log_config(resolver: ConfigResolver, configs: Mapping[str, str]) -> LogConfig:
    """Return the effective storage configs of a topic, such as segment size and retention."""
    return resolver.get_or_compute(_build_log_config, configs)


def resolve_produce_rules(resolver: ConfigResolver, configs: Mapping[str, str]) -> ProduceRules:
    """Return the rules that a topic's configs impose on produced records."""
    return resolver.get_or_compute(_build_produce_rules, configs)


def _build_log_config(resolver: ConfigResolver, configs: Mapping[str, str]) -> LogConfig:
    values = resolver.topic_values(configs)
    return LogConfig(
        segment_bytes=int(values.get("internal.segment.bytes", values["segment.bytes"])),
        segment_ms=int(values["segment.ms"]),
        segment_index_bytes=int(values["segment.index.bytes"]),
        index_interval_bytes=int(values["index.interval.bytes"]),
        retention_ms=int(values["retention.ms"]),
        retention_bytes=int(values["retention.bytes"]),
        cleanup_policy=_parse_cleanup_policies(values),
        delete_retention_ms=int(values["delete.retention.ms"]),
        min_compaction_lag_ms=int(values["min.compaction.lag.ms"]),
        max_compaction_lag_ms=int(values["max.compaction.lag.ms"]),
        min_cleanable_dirty_ratio=float(values["min.cleanable.dirty.ratio"]),
        file_delete_delay_ms=int(values["file.delete.delay.ms"]),
        producer_id_expiration_ms=resolver.broker_int("producer.id.expiration.ms"),
    )


def _build_produce_rules(resolver: ConfigResolver, configs: Mapping[str, str]) -> ProduceRules:
    values = resolver.topic_values(configs)
    compression = values["compression.type"]
    level = _LEVELS.get(compression)
    policies = _parse_cleanup_policies(values)
    return ProduceRules(
        max_message_bytes=int(values["max.message.bytes"]),
        is_compacted="compact" in policies,
        can_delete_records="delete" in policies,
        codec=_CODECS[compression],
        codec_level=None if level is None else int(values[level]),
        uses_log_append_time=values["message.timestamp.type"] == "LogAppendTime",
        timestamp_before_max_ms=int(values["message.timestamp.before.max.ms"]),
        timestamp_after_max_ms=int(values["message.timestamp.after.max.ms"]),
        min_insync_replicas=int(values["min.insync.replicas"]),
        key_schemas=_parse_subject_name_strategy(values, "key"),
        value_schemas=_parse_subject_name_strategy(values, "value"),
    )


def _parse_subject_name_strategy(values: Mapping[str, str], part: str) -> SubjectNameStrategy | None:
    """Return the strategy for the schemas of record keys or values, or None if they are not validated."""
    if values[f"confluent.{part}.schema.validation"] != "true":
        return None
    return SubjectNameStrategy(values[f"confluent.{part}.subject.name.strategy"].removeprefix(SUBJECT_STRATEGY_PREFIX))


def _parse_cleanup_policies(values: Mapping[str, str]) -> frozenset[str]:
    return frozenset(part.strip() for part in values["cleanup.policy"].split(","))
