"""Kafka's command-line tools: kafka-features, kafka-configs and kafka-metadata-quorum."""

from __future__ import annotations

import time

import pytest

from chronik.metadata.levels import HIGHEST

from .kafka_tools import ToolFailed, run_tool

MINUTE_MS = 60_000


def test_kafka_features_describes_levels(bootstrap: str) -> None:
    lines = run_tool("kafka-features", bootstrap, "describe").strip().splitlines()
    expected = [
        ("chronik.version", "1", str(HIGHEST), str(HIGHEST)),
        ("metadata.version", "4.3-IV0", "4.3-IV0", "4.3-IV0"),
        ("transaction.version", "0", "2", "2"),
    ]
    for line, (name, lowest, highest, level) in zip(lines, expected, strict=True):
        feature, epoch = line.split("Epoch:")
        output = [
            name,
            "SupportedMinVersion:",
            lowest,
            "SupportedMaxVersion:",
            highest,
            "FinalizedVersionLevel:",
            level,
        ]
        assert feature.split() == ["Feature:", *output]
        assert int(epoch) > 0


def test_kafka_features_upgrades_up_to_supported_level(bootstrap: str) -> None:
    upgrade = ("upgrade", "--feature")
    for reached in (f"chronik.version={HIGHEST}", "transaction.version=2"):
        output = run_tool("kafka-features", bootstrap, *upgrade, reached)
        assert f"{reached.replace('=', ' was upgraded to ')}" in output
    with pytest.raises(ToolFailed) as raised:
        run_tool("kafka-features", bootstrap, *upgrade, f"chronik.version={HIGHEST + 1}")
    output = f"Invalid update version {HIGHEST + 1} for feature chronik.version. Not all brokers support it"
    assert output in str(raised.value)


def test_kafka_features_rejects_downgrade_of_transaction_version(bootstrap: str) -> None:
    with pytest.raises(ToolFailed, match="is never changed alone"):
        run_tool("kafka-features", bootstrap, "downgrade", "--feature", "transaction.version=1")


def test_kafka_configs_describes_no_users_by_default(bootstrap: str) -> None:
    assert run_tool("kafka-configs", bootstrap, "--describe", "--entity-type", "users").strip() == ""


@pytest.mark.parametrize(
    ("entity", "quotas"),
    [
        (("--entity-type", "users", "--entity-name", "tool"), {"producer_byte_rate": "1048576.0"}),
        (("--entity-type", "users", "--entity-default"), {"request_percentage": "99.5"}),
        (("--entity-type", "clients", "--entity-name", "tool"), {"consumer_byte_rate": "1.0E9"}),
        (
            ("--entity-type", "users", "--entity-name", "tool", "--entity-type", "clients", "--entity-default"),
            {"controller_mutation_rate": "1000.0", "producer_byte_rate": "5.0E9"},
        ),
        (("--entity-type", "ips", "--entity-name", "127.9.9.9"), {"connection_creation_rate": "7.0"}),
    ],
)
def test_kafka_configs_sets_describes_and_deletes_quotas(
    bootstrap: str, entity: tuple[str, ...], quotas: dict[str, str]
) -> None:
    wanted = ",".join(f"{name}={float(value):.15g}" for name, value in quotas.items())
    try:
        run_tool("kafka-configs", bootstrap, "--alter", *entity, "--add-config", wanted)
        described = run_tool("kafka-configs", bootstrap, "--describe", *entity)
        for name, value in quotas.items():
            assert f"{name}={value}" in described
    finally:
        run_tool("kafka-configs", bootstrap, "--alter", *entity, "--delete-config", ",".join(quotas))
    assert not any(name in run_tool("kafka-configs", bootstrap, "--describe", *entity) for name in quotas)


BROKERS = ("--entity-type", "brokers")


BROKER_CONFIGS = {
    "num.io.threads": "9",
    "background.threads": "9",
    "num.replica.fetchers": "2",
    "log.cleaner.threads": "2",
    "log.cleaner.dedupe.buffer.size": "200000000",
    "max.connections.per.ip": "100",
}


def test_kafka_configs_alters_cluster_wide_broker_configs(bootstrap: str) -> None:
    all_brokers = (*BROKERS, "--entity-default")
    wanted = [f"{name}={value}" for name, value in BROKER_CONFIGS.items()]
    try:
        run_tool("kafka-configs", bootstrap, "--alter", *all_brokers, "--add-config", ",".join(wanted))
        described = run_tool("kafka-configs", bootstrap, "--describe", *all_brokers)
        for each in wanted:
            assert f"{each} sensitive=false synonyms={{DYNAMIC_DEFAULT_BROKER_CONFIG:{each}}}" in described
    finally:
        run_tool("kafka-configs", bootstrap, "--alter", *all_brokers, "--delete-config", ",".join(BROKER_CONFIGS))
    assert "sensitive" not in run_tool("kafka-configs", bootstrap, "--describe", *all_brokers)


def test_kafka_configs_rejects_static_broker_config(bootstrap: str) -> None:
    change = ("--alter", *BROKERS, "--entity-default", "--add-config", "log.retention.hours=9")
    with pytest.raises(ToolFailed) as raised:
        run_tool("kafka-configs", bootstrap, *change)
    output = "InvalidRequestException: Cannot update these configs dynamically: [log.retention.hours]"
    assert output in str(raised.value)


def test_kafka_configs_changes_log_level(bootstrap: str) -> None:
    loggers = ("--entity-type", "broker-loggers", "--entity-name", "1")
    run_tool("kafka-configs", bootstrap, "--alter", *loggers, "--add-config", "chronik.broker=DEBUG")
    described = run_tool("kafka-configs", bootstrap, "--describe", *loggers)
    assert "chronik.broker=DEBUG sensitive=false synonyms={}" in described
    run_tool("kafka-configs", bootstrap, "--alter", *loggers, "--delete-config", "chronik.broker")
    assert "chronik.broker=DEBUG" not in run_tool("kafka-configs", bootstrap, "--describe", *loggers)


def test_kafka_configs_alters_group_config(bootstrap: str) -> None:
    group = ("--entity-type", "groups", "--entity-name", "described-by-a-tool")
    run_tool("kafka-configs", bootstrap, "--alter", *group, "--add-config", "consumer.session.timeout.ms=46000")
    described = run_tool("kafka-configs", bootstrap, "--describe", *group)
    own = "DYNAMIC_GROUP_CONFIG:consumer.session.timeout.ms=46000"
    default = "DEFAULT_CONFIG:group.consumer.session.timeout.ms=45000"
    assert f"consumer.session.timeout.ms=46000 sensitive=false synonyms={{{own}, {default}}}" in described
    run_tool("kafka-configs", bootstrap, "--alter", *group, "--delete-config", "consumer.session.timeout.ms")


def test_kafka_metadata_quorum_reports_voter_fetch_times(bootstrap: str) -> None:
    head, voter = run_tool("kafka-metadata-quorum", bootstrap, "describe", "--replication").strip().splitlines()
    output = dict(zip(head.split(), voter.split(), strict=True))
    assert (output["NodeId"], output["Lag"], output["Status"]) == ("1", "0", "Leader")
    now_ms = time.time() * 1000
    assert abs(int(output["LastFetchTimestamp"]) - now_ms) < MINUTE_MS
    assert abs(int(output["LastCaughtUpTimestamp"]) - now_ms) < MINUTE_MS
