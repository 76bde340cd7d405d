"""Kafka's own command line tools, run against a broker as an operator would."""

from __future__ import annotations

import time

import pytest

from chronik.metadata.levels import HIGHEST

from .kafka_tools import ToolFailed, run_tool

MINUTE_MS = 60_000


def test_features_are_described(bootstrap: str) -> None:
    lines = run_tool("kafka-features", bootstrap, "describe").strip().splitlines()
    expected = [
        ("chronik.version", "1", str(HIGHEST), str(HIGHEST)),
        ("metadata.version", "4.3-IV0", "4.3-IV0", "4.3-IV0"),
        ("transaction.version", "0", "2", "2"),
    ]
    for line, (name, lowest, highest, level) in zip(lines, expected, strict=True):
        feature, epoch = line.split("Epoch:")
        told = [name, "SupportedMinVersion:", lowest, "SupportedMaxVersion:", highest, "FinalizedVersionLevel:", level]
        assert feature.split() == ["Feature:", *told]
        assert int(epoch) > 0


def test_a_feature_is_upgraded_as_far_as_brokers_support_it(bootstrap: str) -> None:
    upgrade = ("upgrade", "--feature")
    for reached in (f"chronik.version={HIGHEST}", "transaction.version=2"):
        told = run_tool("kafka-features", bootstrap, *upgrade, reached)
        assert f"{reached.replace('=', ' was upgraded to ')}" in told
    with pytest.raises(ToolFailed) as refused:
        run_tool("kafka-features", bootstrap, *upgrade, f"chronik.version={HIGHEST + 1}")
    told = f"Invalid update version {HIGHEST + 1} for feature chronik.version. Not all brokers support it"
    assert told in str(refused.value)


def test_transactions_are_not_switched_off_by_themselves(bootstrap: str) -> None:
    with pytest.raises(ToolFailed, match="is never changed alone"):
        run_tool("kafka-features", bootstrap, "downgrade", "--feature", "transaction.version=1")


def test_there_are_no_quotas_and_credentials_to_describe(bootstrap: str) -> None:
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
def test_quotas_are_set_described_and_deleted(bootstrap: str, entity: tuple[str, ...], quotas: dict[str, str]) -> None:
    wanted = ",".join(f"{name}={float(value):.15g}" for name, value in quotas.items())
    try:
        run_tool("kafka-configs", bootstrap, "--alter", *entity, "--add-config", wanted)
        shown = run_tool("kafka-configs", bootstrap, "--describe", *entity)
        for name, value in quotas.items():
            assert f"{name}={value}" in shown
    finally:
        run_tool("kafka-configs", bootstrap, "--alter", *entity, "--delete-config", ",".join(quotas))
    assert not any(name in run_tool("kafka-configs", bootstrap, "--describe", *entity) for name in quotas)


BROKERS = ("--entity-type", "brokers")


KEPT = {
    "num.io.threads": "9",
    "background.threads": "9",
    "num.replica.fetchers": "2",
    "log.cleaner.threads": "2",
    "log.cleaner.dedupe.buffer.size": "200000000",
    "max.connections.per.ip": "100",
}


def test_configs_of_all_brokers_are_changed_described_and_deleted(bootstrap: str) -> None:
    everywhere = (*BROKERS, "--entity-default")
    wanted = [f"{name}={value}" for name, value in KEPT.items()]
    try:
        run_tool("kafka-configs", bootstrap, "--alter", *everywhere, "--add-config", ",".join(wanted))
        shown = run_tool("kafka-configs", bootstrap, "--describe", *everywhere)
        for each in wanted:
            assert f"{each} sensitive=false synonyms={{DYNAMIC_DEFAULT_BROKER_CONFIG:{each}}}" in shown
    finally:
        run_tool("kafka-configs", bootstrap, "--alter", *everywhere, "--delete-config", ",".join(KEPT))
    assert "sensitive" not in run_tool("kafka-configs", bootstrap, "--describe", *everywhere)


def test_what_needs_a_restart_is_refused_with_kafkas_words(bootstrap: str) -> None:
    change = ("--alter", *BROKERS, "--entity-default", "--add-config", "log.retention.hours=9")
    with pytest.raises(ToolFailed) as refused:
        run_tool("kafka-configs", bootstrap, *change)
    told = "InvalidRequestException: Cannot update these configs dynamically: [log.retention.hours]"
    assert told in str(refused.value)


def test_a_logger_is_made_talkative_and_quiet_again(bootstrap: str) -> None:
    loggers = ("--entity-type", "broker-loggers", "--entity-name", "1")
    run_tool("kafka-configs", bootstrap, "--alter", *loggers, "--add-config", "chronik.broker=DEBUG")
    shown = run_tool("kafka-configs", bootstrap, "--describe", *loggers)
    assert "chronik.broker=DEBUG sensitive=false synonyms={}" in shown
    run_tool("kafka-configs", bootstrap, "--alter", *loggers, "--delete-config", "chronik.broker")
    assert "chronik.broker=DEBUG" not in run_tool("kafka-configs", bootstrap, "--describe", *loggers)


def test_configs_of_a_group_are_changed_and_described(bootstrap: str) -> None:
    group = ("--entity-type", "groups", "--entity-name", "described-by-a-tool")
    run_tool("kafka-configs", bootstrap, "--alter", *group, "--add-config", "consumer.session.timeout.ms=46000")
    shown = run_tool("kafka-configs", bootstrap, "--describe", *group)
    own = "DYNAMIC_GROUP_CONFIG:consumer.session.timeout.ms=46000"
    default = "DEFAULT_CONFIG:group.consumer.session.timeout.ms=45000"
    assert f"consumer.session.timeout.ms=46000 sensitive=false synonyms={{{own}, {default}}}" in shown
    run_tool("kafka-configs", bootstrap, "--alter", *group, "--delete-config", "consumer.session.timeout.ms")


def test_the_quorum_tells_when_its_voters_were_heard(bootstrap: str) -> None:
    head, voter = run_tool("kafka-metadata-quorum", bootstrap, "describe", "--replication").strip().splitlines()
    told = dict(zip(head.split(), voter.split(), strict=True))
    assert (told["NodeId"], told["Lag"], told["Status"]) == ("1", "0", "Leader")
    now_ms = time.time() * 1000
    assert abs(int(told["LastFetchTimestamp"]) - now_ms) < MINUTE_MS
    assert abs(int(told["LastCaughtUpTimestamp"]) - now_ms) < MINUTE_MS
