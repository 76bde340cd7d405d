"""Admin requests of kafka-python, librdkafka and Java clients."""

from __future__ import annotations

import time
from typing import Any

import pytest

from .client_catalog import CLIENTS
from .client_process import ClientPool, ClientProcess, CommandFailed, unique_name, wait_for
from .drivers.wire import Record

ADMINS = [name for name, client in CLIENTS.items() if client.administers]
DAY_MS = 86_400_000


@pytest.fixture(params=ADMINS)
def admin(request: pytest.FixtureRequest, clients: ClientPool) -> ClientProcess:
    return clients.get(request.param)


def only(*names: str) -> pytest.MarkDecorator:
    """Parametrize a test with those clients that have the command."""
    return pytest.mark.parametrize("admin", names, indirect=True)


def _create(admin: ClientProcess, name: str, **topic: Any) -> str:
    admin.admin("create_topics", topics={name: topic})
    wait_for(f"{name} is listed", lambda: name in admin.admin("list_topics"))
    return name


def _config(admin: ClientProcess, topic: str, key: str) -> dict[str, Any]:
    described: dict[str, dict[str, Any]] = admin.admin("describe_configs", kind="topic", name=topic)
    return described[key]


def _rejection_of(admin: ClientProcess, command: str, **arguments: Any) -> str:
    """Return Kafka's name of the error with which the broker rejects the command."""
    with pytest.raises(CommandFailed) as raised:
        admin.admin(command, **arguments)
    return raised.value.name


def _broker_ids(admin: ClientProcess) -> list[int]:
    return [node["id"] for node in admin.admin("describe_cluster")["nodes"]]


def test_topic_is_created_described_and_deleted(admin: ClientProcess) -> None:
    topic = _create(
        admin, unique_name("made"), partitions=3, replication_factor=1, configs={"retention.ms": "86400000"}
    )
    partitions = admin.admin("describe_topics", topics=[topic])[topic]
    assert [partition["partition"] for partition in partitions] == [0, 1, 2]
    brokers = _broker_ids(admin)
    for partition in partitions:
        assert partition["leader"] in brokers
        assert partition["replicas"] == partition["isr"] == [partition["leader"]]
    retention = _config(admin, topic, "retention.ms")
    assert (retention["value"], retention["source"]) == (str(DAY_MS), "DYNAMIC_TOPIC_CONFIG")
    admin.admin("delete_topics", topics=[topic])
    wait_for("deletion of the topic", lambda: topic not in admin.admin("list_topics"))
    assert _rejection_of(admin, "describe_topics", topics=[topic]) == "UNKNOWN_TOPIC_OR_PARTITION"


def test_topic_without_counts_uses_broker_defaults(admin: ClientProcess) -> None:
    topic = _create(admin, unique_name("defaults"))
    assert len(admin.admin("describe_topics", topics=[topic])[topic]) >= 1


def test_topic_is_created_with_manual_replica_assignment(admin: ClientProcess) -> None:
    broker = _broker_ids(admin)[0]
    topic = _create(admin, unique_name("assigned"), assignments={"0": [broker], "1": [broker]})
    partitions = admin.admin("describe_topics", topics=[topic])[topic]
    assert [(p["partition"], p["leader"], p["replicas"]) for p in partitions] == [
        (0, broker, [broker]),
        (1, broker, [broker]),
    ]


def test_validate_only_checks_but_creates_no_topic(admin: ClientProcess) -> None:
    topic = unique_name("validated")
    valid_topics = {topic: {"partitions": 1, "replication_factor": 1}}
    invalid_config = {topic: {"partitions": 1, "replication_factor": 1, "configs": {"retention.ms": "soon"}}}
    admin.admin("create_topics", topics=valid_topics, validate_only=True)
    assert _rejection_of(admin, "create_topics", topics=invalid_config, validate_only=True) == "INVALID_CONFIG"
    later = _create(admin, unique_name("later"), partitions=1, replication_factor=1)
    listed = admin.admin("list_topics")
    assert later in listed
    assert topic not in listed


def test_invalid_topic_is_rejected_with_kafka_error(admin: ClientProcess) -> None:
    topic = _create(admin, unique_name("taken"), partitions=1, replication_factor=1)
    invalid_topics = {
        "TOPIC_ALREADY_EXISTS": {topic: {"partitions": 1, "replication_factor": 1}},
        "INVALID_REPLICATION_FACTOR": {unique_name("wide"): {"partitions": 1, "replication_factor": 100}},
        "INVALID_TOPIC_EXCEPTION": {"no/such name": {"partitions": 1, "replication_factor": 1}},
        "INVALID_PARTITIONS": {unique_name("none"): {"partitions": 0, "replication_factor": 1}},
        "INVALID_CONFIG": {unique_name("odd"): {"partitions": 1, "replication_factor": 1, "configs": {"no.such": "1"}}},
    }
    error_names = {
        expected: _rejection_of(admin, "create_topics", topics=topics) for expected, topics in invalid_topics.items()
    }
    assert error_names == {expected: expected for expected in invalid_topics}


def test_many_topics_are_created_and_deleted_in_one_call(admin: ClientProcess) -> None:
    names = [unique_name(f"many-{number}") for number in range(20)]
    admin.admin("create_topics", topics={name: {"partitions": 2, "replication_factor": 1} for name in names})
    wait_for("all are listed", lambda: set(names) <= set(admin.admin("list_topics")))
    assert all(len(partitions) == 2 for partitions in admin.admin("describe_topics", topics=names).values())
    admin.admin("delete_topics", topics=names)
    wait_for("deletion of all topics", lambda: not set(names) & set(admin.admin("list_topics")))


@only("kafka-python", "java-3.9", "java-4")
def test_describe_topic_partitions_supports_paging(admin: ClientProcess) -> None:
    topic = _create(admin, unique_name("paged"), partitions=5, replication_factor=1)
    assert admin.admin("describe_topic_partitions", topic=topic) == [0, 1, 2, 3, 4]


def test_partition_count_can_be_increased_but_not_reduced(admin: ClientProcess) -> None:
    topic = _create(admin, unique_name("growing"), partitions=1, replication_factor=1)
    admin.admin("create_partitions", topic=topic, total=4)
    wait_for("four partitions", lambda: len(admin.admin("describe_topics", topics=[topic])[topic]) == 4)
    assert _rejection_of(admin, "create_partitions", topic=topic, total=2) == "INVALID_PARTITIONS"
    assert len(admin.admin("describe_topics", topics=[topic])[topic]) == 4


def test_incremental_alter_configs_sets_appends_and_deletes(admin: ClientProcess) -> None:
    topic = _create(
        admin, unique_name("tuned"), partitions=1, replication_factor=1, configs={"retention.ms": "86400000"}
    )
    default_config = _config(admin, topic, "segment.bytes")
    changes = [("segment.bytes", "set", "2097152"), ("cleanup.policy", "append", "compact")]
    admin.admin("alter_configs_incrementally", kind="topic", name=topic, changes=changes)
    wait_for("the set value", lambda: _config(admin, topic, "segment.bytes")["value"] == "2097152")
    assert _config(admin, topic, "segment.bytes")["source"] == "DYNAMIC_TOPIC_CONFIG"
    assert sorted(_config(admin, topic, "cleanup.policy")["value"].split(",")) == ["compact", "delete"]
    assert _config(admin, topic, "retention.ms")["value"] == str(DAY_MS), "unnamed configs keep their values"
    changes_back = [("segment.bytes", "delete", None), ("cleanup.policy", "subtract", "delete")]
    admin.admin("alter_configs_incrementally", kind="topic", name=topic, changes=changes_back)
    wait_for("the default value", lambda: _config(admin, topic, "segment.bytes")["value"] == default_config["value"])
    assert _config(admin, topic, "segment.bytes")["source"] == default_config["source"]
    assert _config(admin, topic, "cleanup.policy")["value"] == "compact"


def test_invalid_config_is_rejected_without_changes(admin: ClientProcess) -> None:
    topic = _create(admin, unique_name("stubborn"), partitions=1, replication_factor=1)
    before = admin.admin("describe_configs", kind="topic", name=topic)
    for key, value in (("no.such", "1"), ("retention.ms", "soon"), ("cleanup.policy", "burn")):
        config_changes = [("segment.bytes", "set", "2097152"), (key, "set", value)]
        error_name = _rejection_of(
            admin, "alter_configs_incrementally", kind="topic", name=topic, changes=config_changes
        )
        assert error_name == "INVALID_CONFIG", key
    assert admin.admin("describe_configs", kind="topic", name=topic) == before


@only("kafka-python", "kafka-python-2.6.0", "confluent")
def test_legacy_alter_configs_replaces_all_configs(admin: ClientProcess) -> None:
    topic = _create(
        admin, unique_name("replaced"), partitions=1, replication_factor=1, configs={"retention.ms": "86400000"}
    )
    admin.admin("alter_configs_whole", kind="topic", name=topic, configs={"segment.bytes": "2097152"})
    wait_for("the new value", lambda: _config(admin, topic, "segment.bytes")["value"] == "2097152")
    if admin.name == "confluent":  # kafka-python reads the current configs and sends them again
        assert _config(admin, topic, "retention.ms")["source"] == "DEFAULT_CONFIG"


def test_topic_configs_include_sources_and_synonyms(admin: ClientProcess) -> None:
    topic = _create(
        admin, unique_name("told"), partitions=1, replication_factor=1, configs={"segment.bytes": "2097152"}
    )
    described = admin.admin("describe_configs", kind="topic", name=topic)
    assert {"cleanup.policy", "compression.type", "max.message.bytes", "min.insync.replicas", "retention.bytes"} <= set(
        described
    )
    assert described["segment.bytes"]["synonyms"][0] == ["segment.bytes", "2097152", "DYNAMIC_TOPIC_CONFIG"]
    default = described["compression.type"]
    assert (default["value"], default["source"]) == ("producer", "DEFAULT_CONFIG")
    assert not default["read_only"]
    assert not default["sensitive"]


def test_describe_broker_configs(admin: ClientProcess) -> None:
    broker = _broker_ids(admin)[0]
    described = admin.admin("describe_configs", kind="broker", name=str(broker))
    assert described["advertised.listeners"]["value"]
    assert described["advertised.listeners"]["source"] == "STATIC_BROKER_CONFIG"
    assert {"log.retention.ms", "num.partitions", "auto.create.topics.enable"} <= set(described)


@only("confluent", "java-3.9", "java-4")  # kafka-python does not report errors of DescribeConfigs
def test_describe_configs_of_unknown_topic_is_rejected(admin: ClientProcess) -> None:
    error_name = _rejection_of(admin, "describe_configs", kind="topic", name=unique_name("nowhere"))
    assert error_name == "UNKNOWN_TOPIC_OR_PARTITION"


def test_delete_records_moves_log_start_offset(admin: ClientProcess, clients: ClientPool) -> None:
    topic = clients.create_topic(unique_name("shortened"), 1)
    clients.get("confluent").produce(topic, [Record(b"key", str(n).encode(), partition=0) for n in range(10)])
    assert admin.admin("delete_records", topic=topic, partition=0, before=4) == 4
    assert admin.admin("list_offsets", topic=topic, partition=0, spec="earliest")["offset"] == 4
    received, problem = clients.get("confluent").consume({topic: 6}, None)
    assert problem is None
    assert [record.offset for record in received] == [4, 5, 6, 7, 8, 9]
    assert _rejection_of(admin, "delete_records", topic=topic, partition=0, before=11) == "OFFSET_OUT_OF_RANGE"


def test_list_offsets_by_position_and_timestamp(admin: ClientProcess, clients: ClientPool) -> None:
    topic = clients.create_topic(unique_name("dated"), 1)
    start = time.time_ns() // 1_000_000 - 60_000
    ages = [0, 1000, 5000, 3000, 4000]  # the largest timestamp is not the last
    records = [Record(b"key", b"value", partition=0, timestamp_ms=start + age) for age in ages]
    for record in records:  # one batch each, so that the lookup spans several
        clients.get("confluent").produce(topic, [record])

    def offset(spec: str | int) -> tuple[int, int]:
        found = admin.admin("list_offsets", topic=topic, partition=0, spec=spec)
        return found["offset"], found["timestamp_ms"]

    assert offset("earliest") == (0, -1)
    assert offset("latest") == (5, -1)
    assert offset(start) == (0, start)
    assert offset(start + 1) == (1, start + 1000)
    assert offset(start + 3000) == (2, start + 5000)
    assert offset(start + 5001) == (-1, -1)
    if admin.name != "kafka-python-2.6.0":  # supported since 3.0
        assert offset("max_timestamp") == (2, start + 5000)


def test_describe_cluster(admin: ClientProcess, clients: ClientPool) -> None:
    described = admin.admin("describe_cluster")
    assert described["cluster_id"]
    host, _, port = clients.bootstrap.rpartition(":")
    assert {"host": host, "port": int(port)} in [{"host": n["host"], "port": n["port"]} for n in described["nodes"]]
    assert described["controller"] in [node["id"] for node in described["nodes"]]


@only("kafka-python", "kafka-python-2.6.0", "java-3.9", "java-4")
def test_describe_log_dirs_reports_partition_sizes(admin: ClientProcess, clients: ClientPool) -> None:
    topic = clients.create_topic(unique_name("weighed"), 2)
    clients.get("confluent").produce(topic, [Record(b"key", b"x" * 10_000, partition=1)])
    empty, filled = admin.admin("describe_log_dirs", topic=topic)
    assert empty == [0, 0]
    assert filled[0] == 1
    assert 10_000 < filled[1] < 11_000


def test_groups_can_be_listed_and_described(admin: ClientProcess, clients: ClientPool) -> None:
    topic, group = clients.create_topic(unique_name("watched"), 2), unique_name("watched")
    member = clients.get("aiokafka").join(group, [topic])
    try:
        wait_for("the member has its partitions", lambda: len(member.assignment()) == 2)
        assert admin.admin("list_groups")[group] == "Stable"
        described = admin.admin("describe_group", group=group)
        assert (described["state"], described["protocol"]) == ("Stable", "roundrobin")
        (only,) = described["members"]
        assert only["client_id"].startswith("aiokafka")
        assert sorted(only["assignment"]) == [[topic, 0], [topic, 1]]
    finally:
        member.leave()
    assert admin.admin("list_groups")[group] == "Empty"


def test_offsets_of_empty_group_can_be_altered(admin: ClientProcess, clients: ClientPool) -> None:
    topic, group = clients.create_topic(unique_name("moved"), 2), unique_name("moved")
    for moved in ([topic, 0, 5], [topic, 0, 3]):
        admin.admin("alter_group_offsets", group=group, offsets=[(*moved, "moved"), (topic, 1, 7, "")])
        assert [at[:3] for at in sorted(admin.admin("group_offsets", group=group))] == [moved, [topic, 1, 7]]


def test_group_can_be_deleted_only_when_empty(admin: ClientProcess, clients: ClientPool) -> None:
    topic, group = clients.create_topic(unique_name("deleted"), 1), unique_name("deleted")
    member = clients.get("aiokafka").join(group, [topic])
    try:
        wait_for("the member has its partition", member.assignment)
        assert _rejection_of(admin, "delete_group", group=group) == "NON_EMPTY_GROUP"
    finally:
        member.leave()
    assert group in admin.admin("list_groups")
    admin.admin("delete_group", group=group)
    assert group not in admin.admin("list_groups")


def test_altered_group_offset_keeps_metadata(admin: ClientProcess, clients: ClientPool) -> None:
    topic, group = clients.create_topic(unique_name("noted"), 1), unique_name("noted")
    admin.admin("alter_group_offsets", group=group, offsets=[(topic, 0, 5, "why ✓")])
    ((_, _, offset, metadata),) = clients.get("kafka-python").admin("group_offsets", group=group)
    assert (offset, metadata.removesuffix("\0")) == (5, "why ✓")  # confluent-kafka appends a zero byte
