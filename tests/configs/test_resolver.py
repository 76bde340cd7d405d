"""Resolution and validation of configs."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import cast

import pytest

from chronik.broker.topic_configs import resolve_log_config, resolve_produce_rules
from chronik.configs.broker_key_lookup import iter_broker_keys
from chronik.configs.keys import BROKER_KEYS, SEGMENT_BYTES_MIN, TOPIC_KEYS
from chronik.configs.resolver import DERIVED_CACHE_SIZE, ConfigEntry, ConfigResolver, ConfigSource
from chronik.configs.validation import validate_broker_configs, validate_topic_config
from chronik.errors import ConfigError
from chronik.metadata.commands.brokers import CLUSTER_DEFAULT
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import ErrorCode, KafkaError


def resolver(dynamic: Mapping[int, Mapping[str, str]] | None = None, **static: str) -> ConfigResolver:
    image = SimpleNamespace(broker_configs={} if dynamic is None else dynamic)
    store = cast(MetadataStore, SimpleNamespace(image=image))
    return ConfigResolver(store, 1, {name.replace("_", "."): value for name, value in static.items()})


def test_topic_config_overrides_dynamic_static_and_default_value() -> None:
    key = "log.retention.ms"
    everywhere = {1: {key: "2"}, CLUSTER_DEFAULT: {key: "3"}}
    assert resolver(everywhere, log_retention_ms="4").topic_value({"retention.ms": "1"}, "retention.ms") == "1"
    assert resolver(everywhere, log_retention_ms="4").topic_value({}, "retention.ms") == "2"
    assert resolver({CLUSTER_DEFAULT: {key: "3"}}, log_retention_ms="4").topic_value({}, "retention.ms") == "3"
    assert resolver(log_retention_ms="4").topic_value({}, "retention.ms") == "4"
    assert resolver().topic_value({}, "retention.ms") == "604800000"


def test_stored_small_segment_size_stays_and_internal_size_has_precedence() -> None:
    stored = {"segment.bytes": "100"}
    assert resolve_log_config(resolver(), stored).segment_bytes == 100
    assert resolve_log_config(resolver({1: {"log.segment.bytes": "200"}}), {}).segment_bytes == 200
    assert resolve_log_config(resolver(), {**stored, "internal.segment.bytes": "50"}).segment_bytes == 50
    described = {entry.key.name: entry.value for entry in resolver().describe_topic({})}
    assert "internal.segment.bytes" not in described
    described = {entry.key.name: entry.value for entry in resolver().describe_topic({"internal.segment.bytes": "50"})}
    assert described["internal.segment.bytes"] == "50"


def test_broker_segment_size_below_minimum_is_rejected() -> None:
    validate_broker_configs({"log.segment.bytes": str(SEGMENT_BYTES_MIN)}, cluster_wide=True)
    with pytest.raises(KafkaError, match=r"log\.segment\.bytes"):
        validate_broker_configs({"log.segment.bytes": str(SEGMENT_BYTES_MIN - 1)}, cluster_wide=True)
    with pytest.raises(ConfigError, match=r"log\.segment\.bytes"):
        resolver(log_segment_bytes=str(SEGMENT_BYTES_MIN - 1))


def test_derived_values_are_cached_until_broker_configs_change() -> None:
    made: list[tuple[str, str]] = []

    def make(resolver: ConfigResolver, configs: Mapping[str, str]) -> tuple[str, str]:
        made.append((resolver.topic_value(configs, "retention.ms"), resolver.topic_value(configs, "segment.bytes")))
        return made[-1]

    dynamic: dict[int, Mapping[str, str]] = {}
    config_resolver = resolver(dynamic, log_retention_ms="4")
    for _ in range(3):
        assert config_resolver.get_or_compute(make, {"segment.bytes": "7000000"}) == ("4", "7000000")
        assert config_resolver.get_or_compute(make, {"segment.bytes": "8000000"}) == ("4", "8000000")
    assert len(made) == 2
    for broker_id, value in ((CLUSTER_DEFAULT, "3"), (1, "2"), (1, "1")):
        dynamic[broker_id] = {"log.retention.ms": value}
        assert config_resolver.get_or_compute(make, {"segment.bytes": "7000000"}) == (value, "7000000")
    del dynamic[1]
    assert config_resolver.get_or_compute(make, {"segment.bytes": "7000000"}) == ("3", "7000000")
    assert len(made) == 6


def test_settings_of_topics_with_equal_configs_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    config_resolver, calls = resolver(), 0
    topic_values = ConfigResolver.topic_values

    def counted(self: ConfigResolver, configs: Mapping[str, str]) -> Mapping[str, str]:
        nonlocal calls
        calls += 1
        return topic_values(self, configs)

    monkeypatch.setattr(ConfigResolver, "topic_values", counted)
    for _ in range(1000):
        assert resolve_log_config(config_resolver, {"retention.ms": "5"}).retention_ms == 5
        assert resolve_produce_rules(config_resolver, {"retention.ms": "5"}).can_delete_records
    assert calls == 2  # once for each setting


def test_topic_values_equal_individually_resolved_values() -> None:
    dynamic: dict[int, Mapping[str, str]] = {1: {"log.retention.ms": "2"}}
    config_resolver = resolver(dynamic, log_segment_bytes="5000000")
    for configs in ({}, {"retention.bytes": "9", "cleanup.policy": "compact"}):
        expected = {
            name: config_resolver.topic_value(configs, name) for name, key in TOPIC_KEYS.items() if not key.internal
        }
        assert config_resolver.topic_values(configs) == expected
    assert config_resolver.topic_values({})["retention.ms"] == "2"
    dynamic[1] = {"log.retention.ms": "3"}
    assert config_resolver.topic_values({})["retention.ms"] == "3"


def test_cache_of_derived_values_is_limited() -> None:
    config_resolver = resolver()
    for number in range(DERIVED_CACHE_SIZE + 1):
        assert config_resolver.get_or_compute(retention_of, {"retention.ms": str(number)}) == str(number)
        assert len(config_resolver._get_current_cache().derived) <= DERIVED_CACHE_SIZE


def retention_of(config_resolver: ConfigResolver, configs: Mapping[str, str]) -> str:
    return config_resolver.topic_value(configs, "retention.ms")


def test_description_lists_synonyms_in_order_of_precedence() -> None:
    described = resolver({CLUSTER_DEFAULT: {"log.retention.ms": "3"}}).describe_topic({"retention.ms": "1"})
    entry = next(entry for entry in described if entry.key.name == "retention.ms")
    assert (entry.value, entry.source) == ("1", ConfigSource.DYNAMIC_TOPIC)
    assert [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms] == [
        ("retention.ms", "1", ConfigSource.DYNAMIC_TOPIC),
        ("log.retention.ms", "3", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ("log.retention.hours", "168", ConfigSource.DEFAULT),
    ]


def test_defaults_are_valid_and_topic_keys_have_broker_defaults() -> None:
    for key in (*TOPIC_KEYS.values(), *iter_broker_keys()):
        assert key.default is None or key.check(key.default) is None, key.name
        assert key.doc.endswith("."), key.name
    without = {name for name, key in TOPIC_KEYS.items() if key.synonym is None}
    # These name replicas of the topic itself, so there is no broker default.
    throttles = {"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"}
    # These apply to pipelines, not to brokers.
    parts_of_tables = ("enabled", "format", "key.format", "partition.by", "schema", "table", "writer.schema")
    maintenance = ("file.bytes", "history.retention.ms", "maintenance.enabled")
    pipelines = {f"columnar.{name}" for name in (*parts_of_tables, *maintenance)}
    # Kafka has no broker default for these either.
    tiers = {"remote.storage.enable", "remote.log.copy.disable", "remote.log.delete.on.disable"}
    internal = {"internal.segment.bytes"}
    # Confluent's brokers have no defaults for these either.
    parts = ("key", "value")
    schemas = {f"confluent.{part}.{name}" for part in parts for name in ("schema.validation", "subject.name.strategy")}
    assert without == throttles | pipelines | tiers | schemas | internal
    for name in TOPIC_KEYS.keys() - without:
        assert TOPIC_KEYS[name].synonym in BROKER_KEYS, name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-2"),
        ("retention.ms", "soon"),
        ("cleanup.policy", "shred"),
        ("cleanup.policy", "delete,"),
        ("cleanup.policy", "delete compact"),
        ("compression.type", "brotli"),
        ("min.cleanable.dirty.ratio", "1.1"),
        ("preallocate", "yes"),
        ("segment.bytes", str(SEGMENT_BYTES_MIN - 1)),
        ("internal.segment.bytes", "0"),
        ("no.such.key", "1"),
    ],
)
def test_invalid_topic_config_is_rejected(name: str, value: str) -> None:
    with pytest.raises(KafkaError) as raised:
        validate_topic_config(name, value)
    assert raised.value.code is ErrorCode.INVALID_CONFIG
    assert name in raised.value.message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-1"),
        ("cleanup.policy", "compact,delete"),
        ("cleanup.policy", "delete,delete"),
        ("cleanup.policy", ""),
        ("segment.bytes", str(SEGMENT_BYTES_MIN)),
        ("internal.segment.bytes", "14"),
        ("segment.ms", "1"),
    ],
)
def test_valid_topic_config_is_accepted(name: str, value: str) -> None:
    validate_topic_config(name, value)


@pytest.mark.parametrize(
    ("policy", "deletes", "compacts"),
    [("", False, False), ("delete,delete", True, False), ("compact", False, True), ("delete, compact", True, True)],
)
def test_cleanup_policy_determines_deletion_and_compaction(policy: str, deletes: bool, compacts: bool) -> None:
    config = resolve_log_config(resolver(), {"cleanup.policy": policy})
    assert (config.is_retention_enabled, config.is_compaction_enabled) == (deletes, compacts)


def rejection(wanted: Mapping[str, str], *, cluster_wide: bool = False) -> tuple[ErrorCode, str]:
    with pytest.raises(KafkaError) as raised:
        validate_broker_configs(wanted, cluster_wide=cluster_wide)
    return raised.value.code, raised.value.message


def test_dynamic_broker_config_rejections_match_kafka() -> None:
    validate_broker_configs({"num.io.threads": "3", "max.connections": "7", "some.plugins.key": "x"}, cluster_wide=True)
    validate_broker_configs({"sasl.kerberos.min.time.before.relogin": "58000"}, cluster_wide=False)
    assert rejection({"num.partitions": "3", "num.io.threads": "3", "log.retention.hours": "1"}) == (
        ErrorCode.INVALID_REQUEST,
        "Cannot update these configs dynamically: [log.retention.hours, num.partitions]",
    )
    assert rejection({"sasl.kerberos.min.time.before.relogin": "58000"}, cluster_wide=True) == (
        ErrorCode.INVALID_REQUEST,
        "Cannot update these configs at default cluster level, broker id must be specified: "
        "[sasl.kerberos.min.time.before.relogin]",
    )
    assert rejection({"ssl.keystore.password": "x"}) == (
        ErrorCode.INVALID_REQUEST,
        "These security configs can be dynamically updated only per-listener using the listener prefix: "
        "[ssl.keystore.password]",
    )
    validate_broker_configs({"listener.name.plaintext.ssl.keystore.password": "x"}, cluster_wide=False)
    code, message = rejection({"num.io.threads": "0"})
    assert code is ErrorCode.INVALID_REQUEST
    assert message.startswith("Invalid value 0 for configuration num.io.threads")


@pytest.mark.parametrize(
    ("static", "retention", "shown"),
    [
        ({}, "604800000", ["log.retention.hours"]),
        ({"log_retention_hours": "5"}, "18000000", ["log.retention.hours", "log.retention.hours"]),
        ({"log_retention_hours": "5", "log_retention_minutes": "7"}, "420000", ["log.retention.minutes"]),
        ({"log_retention_minutes": "7", "log_retention_ms": "9"}, "9", ["log.retention.ms", "log.retention.minutes"]),
        ({"log_retention_hours": "-1"}, "-1", ["log.retention.hours"]),
    ],
)
def test_retention_uses_config_with_finest_unit(static: dict[str, str], retention: str, shown: list[str]) -> None:
    config_resolver = resolver(None, **static)
    assert (
        config_resolver.topic_value({}, "retention.ms") == config_resolver.broker_value("log.retention.ms") == retention
    )
    entry = described(config_resolver, "log.retention.ms")
    assert entry.value == retention
    assert [synonym.name for synonym in entry.synonyms][: len(shown)] == shown
    assert entry.synonyms[-1].name == "log.retention.hours"


def test_dynamic_config_overrides_static_config_in_other_unit() -> None:
    config_resolver = resolver(
        {CLUSTER_DEFAULT: {"log.retention.ms": "3"}}, log_retention_hours="5", log_roll_hours="2"
    )
    assert config_resolver.topic_value({}, "retention.ms") == "3"
    assert config_resolver.topic_value({}, "segment.ms") == "7200000"
    assert config_resolver.topic_value({}, "flush.ms") == str(2**63 - 1)


def described(config_resolver: ConfigResolver, name: str) -> ConfigEntry:
    entries = {entry.key.name: entry for entry in config_resolver.describe_broker(1)}
    assert name in entries, f"configs/keys.py has no broker key {name}"
    return entries[name]


def test_invalid_static_broker_config_is_rejected_at_startup() -> None:
    with pytest.raises(ConfigError, match="nonsense"):
        resolver(nonsense="1")
    with pytest.raises(ConfigError, match=r"num\.partitions = 'none': expected a whole number"):
        resolver(num_partitions="none")
    with pytest.raises(ConfigError, match=r"log\.retention\.hours = '0': expected -1, or a whole number"):
        resolver(log_retention_hours="0")


def test_config_file_accepts_every_kafka_broker_config() -> None:
    values = {key.name: key.default for key in iter_broker_keys() if key.default is not None}
    assert len(values) > 300
    resolver(None, **{name.replace(".", "_"): value for name, value in values.items()})
    resolver(ssl_keystore_password="anything", listener_name_internal_ssl_keystore_password="anything")
