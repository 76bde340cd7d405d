"""What each API asks for, and what who has no right to it is told: a request of each kind, with its needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from chronik.ids import ZERO_ID
from chronik.protocol.batch import NO_PRODUCER_ID
from chronik.protocol.errors import ErrorCode
from chronik.protocol.permissions import Need, parse_needs
from chronik.protocol.records import Record, encode_batch

TOPIC_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_REFUSED = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
ID_REFUSED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


NAME = "NAME"


class Names(NamedTuple):
    topic: str
    group: str
    transactional_id: str
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = 0


class Asked(NamedTuple):
    api: str
    version: int
    needs: dict[Need, ErrorCode]
    """All of them are needed; without one of them this is told."""
    values: Callable[[Names], dict[str, Any]]
    then: frozenset[ErrorCode] = frozenset()
    """What may still be wrong with a request that is allowed: it came as far as that."""


def asked(
    api: str,
    version: int,
    needs: str,
    refusals: list[ErrorCode],
    values: Callable[[Names], dict[str, Any]],
    *then: ErrorCode,
) -> Asked:
    return Asked(api, version, dict(zip(parse_needs(needs), refusals, strict=True)), values, frozenset(then))


def on_cluster(api: str, version: int, right: str, /, *then: ErrorCode, **values: Any) -> Asked:
    """Where a value has NAME in it, that is a topic's."""
    return asked(api, version, f"{right} Cluster", [CLUSTER_REFUSED], lambda n: _named(values, n.topic), *then)


def _named(value: Any, topic: str) -> Any:
    if isinstance(value, dict):
        return {key: _named(each, topic) for key, each in value.items()}
    if isinstance(value, list):
        return [_named(each, topic) for each in value]
    return topic if value == NAME else value


BATCH: Final = encode_batch([Record(0, -1, None, b"v")])
ANY_ACL: Final = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
ACL: Final = {
    "resource_type": 2,
    "resource_name": "some",
    "resource_pattern_type": 3,
    "principal": "User:nobody",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
MARKER: Final = {"producer_id": 1, "producer_epoch": 0, "topics": [{"name": "no", "partition_indexes": [0]}]}
FAILS: Final = ErrorCode.INVALID_REQUEST
A_QUOTA: Final = {
    "entity": [{"entity_type": "user", "entity_name": "u"}],
    "ops": [{"key": "consumer_byte_rate", "value": 1.0, "remove": False}],
}
A_PASSWORD: Final = {"name": "nobody", "mechanism": 1}


def transactional_batch(names: Names) -> bytes:
    producer: dict[str, Any] = {
        "producer_id": names.producer_id,
        "producer_epoch": names.producer_epoch,
        "base_sequence": 0,
    }
    return encode_batch([Record(0, -1, None, b"v")], transactional=True, **producer)


def _offsets(names: Names) -> dict[str, Any]:
    partition = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
    return {"group_id": names.group, "topics": [{"name": names.topic, "partitions": [partition]}]}


def _producer(names: Names) -> dict[str, Any]:
    return {
        "transactional_id": names.transactional_id,
        "producer_id": names.producer_id,
        "producer_epoch": names.producer_epoch,
    }


def _produced(names: Names, records: bytes) -> dict[str, Any]:
    partition = {"index": 0, "records": records}
    return {"acks": -1, "timeout_ms": 9000, "topic_data": [{"name": names.topic, "partition_data": [partition]}]}


def _config(kind: int, name: str, **more: Any) -> dict[str, Any]:
    return {"resources": [{"resource_type": kind, "resource_name": name, **more}]}


def _epochs(names: Names) -> dict[str, Any]:
    return {"topics": [{"topic": names.topic, "partitions": [{"partition": 0, "leader_epoch": 0}]}]}


def _new_topic(names: Names) -> dict[str, Any]:
    return {"topics": [{"name": names.topic, "num_partitions": 1, "replication_factor": 1}]}


TOPIC, BROKER, GROUP = 2, 4, 32
SET: Final = {"configs": [{"name": "retention.ms", "value": "60000"}]}
SET_ON_GROUP: Final = {"configs": [{"name": "consumer.session.timeout.ms", "value": "50000"}]}

TABLE: Final = (
    asked("Produce", 9, "Write Topic", [TOPIC_REFUSED], lambda n: _produced(n, BATCH)),
    asked(
        "Produce",
        9,
        "Write Topic, Write TransactionalId",
        [TOPIC_REFUSED, ID_REFUSED],
        lambda n: {"transactional_id": n.transactional_id, **_produced(n, transactional_batch(n))},
        ErrorCode.INVALID_TXN_STATE,
    ),
    asked(
        "Produce",
        9,
        "Write Topic, ClusterAction Cluster",
        [TOPIC_REFUSED, ErrorCode.INVALID_TOPIC_EXCEPTION],
        lambda n: _produced(n._replace(topic="__consumer_offsets"), BATCH),
        ErrorCode.INVALID_RECORD,
    ),
    asked(
        "Fetch",
        12,
        "Read Topic",
        [TOPIC_REFUSED],
        lambda n: {"topics": [{"topic": n.topic, "partitions": [{"partition": 0, "partition_max_bytes": 1 << 20}]}]},
    ),
    asked(
        "ListOffsets",
        7,
        "Describe Topic",
        [TOPIC_REFUSED],
        lambda n: {
            "replica_id": -1,
            "topics": [{"name": n.topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}],
        },
    ),
    asked(
        "Metadata",
        12,
        "Describe Topic",
        [TOPIC_REFUSED],
        lambda n: {"topics": [{"name": n.topic}], "allow_auto_topic_creation": False},
    ),
    asked("OffsetCommit", 8, "Read Group, Read Topic", [GROUP_REFUSED, TOPIC_REFUSED], _offsets),
    asked(
        "OffsetFetch",
        8,
        "Describe Group, Describe Topic",
        [GROUP_REFUSED, TOPIC_REFUSED],
        lambda n: {"groups": [{"group_id": n.group, "topics": [{"name": n.topic, "partition_indexes": [0]}]}]},
    ),
    asked(
        "OffsetFetch",
        1,
        "Describe Group, Describe Topic",
        [GROUP_REFUSED, TOPIC_REFUSED],
        lambda n: {"group_id": n.group, "topics": [{"name": n.topic, "partition_indexes": [0]}]},
    ),
    asked("FindCoordinator", 4, "Describe Group", [GROUP_REFUSED], lambda n: {"coordinator_keys": [n.group]}),
    asked(
        "FindCoordinator",
        4,
        "Describe TransactionalId",
        [ID_REFUSED],
        lambda n: {"key_type": 1, "coordinator_keys": [n.transactional_id]},
    ),
    asked(
        "JoinGroup",
        5,
        "Read Group",
        [GROUP_REFUSED],
        lambda n: {
            "group_id": n.group,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        },
        ErrorCode.MEMBER_ID_REQUIRED,
    ),
    asked(
        "Heartbeat",
        3,
        "Read Group",
        [GROUP_REFUSED],
        lambda n: {"group_id": n.group, "member_id": "m"},
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    asked(
        "LeaveGroup",
        3,
        "Read Group",
        [GROUP_REFUSED],
        lambda n: {"group_id": n.group, "members": [{"member_id": "m"}]},
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    asked(
        "SyncGroup",
        3,
        "Read Group",
        [GROUP_REFUSED],
        lambda n: {"group_id": n.group, "member_id": "m"},
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    asked("DescribeGroups", 5, "Describe Group", [GROUP_REFUSED], lambda n: {"groups": [n.group]}),
    asked("CreateTopics", 7, "Create Topic", [TOPIC_REFUSED], _new_topic, ErrorCode.TOPIC_ALREADY_EXISTS),
    asked("CreateTopics", 7, "Create Cluster", [TOPIC_REFUSED], _new_topic, ErrorCode.TOPIC_ALREADY_EXISTS),
    asked("DeleteTopics", 6, "Delete Topic", [TOPIC_REFUSED], lambda n: {"topics": [{"name": n.topic}]}),
    asked("DeleteTopics", 3, "Delete Topic", [TOPIC_REFUSED], lambda n: {"topic_names": [n.topic]}),
    asked(
        "DeleteRecords",
        2,
        "Delete Topic",
        [TOPIC_REFUSED],
        lambda n: {
            "topics": [{"name": n.topic, "partitions": [{"partition_index": 0, "offset": 0}]}],
            "timeout_ms": 9000,
        },
    ),
    asked(
        "InitProducerId",
        4,
        "Write TransactionalId",
        [ID_REFUSED],
        lambda n: {"transactional_id": n.transactional_id, "transaction_timeout_ms": 60_000},
    ),
    asked("InitProducerId", 4, "Write Topic", [CLUSTER_REFUSED], lambda _: {"transactional_id": None}),
    asked("InitProducerId", 4, "IdempotentWrite Cluster", [CLUSTER_REFUSED], lambda _: {"transactional_id": None}),
    asked("OffsetForLeaderEpoch", 4, "Describe Topic", [TOPIC_REFUSED], _epochs),
    asked("OffsetForLeaderEpoch", 4, "ClusterAction Cluster", [TOPIC_REFUSED], _epochs),
    asked(
        "AddPartitionsToTxn",
        3,
        "Write TransactionalId, Write Topic",
        [ID_REFUSED, TOPIC_REFUSED],
        lambda n: {**_producer(n), "topics": [{"name": n.topic, "partitions": [0]}]},
    ),
    on_cluster("AddPartitionsToTxn", 5, "ClusterAction", transactions=[]),
    asked(
        "AddOffsetsToTxn",
        3,
        "Write TransactionalId, Read Group",
        [ID_REFUSED, GROUP_REFUSED],
        lambda n: {**_producer(n), "group_id": n.group},
    ),
    asked(
        "EndTxn",
        3,
        "Write TransactionalId",
        [ID_REFUSED],
        lambda n: {**_producer(n), "committed": True},
        ErrorCode.INVALID_TXN_STATE,
    ),
    on_cluster("WriteTxnMarkers", 1, "ClusterAction", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, markers=[MARKER]),
    on_cluster("WriteTxnMarkers", 1, "Alter", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, markers=[MARKER]),
    asked(
        "TxnOffsetCommit",
        3,
        "Write TransactionalId, Read Group, Read Topic",
        [ID_REFUSED, GROUP_REFUSED, TOPIC_REFUSED],
        lambda n: {**_producer(n), **_offsets(n)},
        ErrorCode.INVALID_TXN_STATE,
    ),
    on_cluster("DescribeAcls", 3, "Describe", **ANY_ACL),
    on_cluster("CreateAcls", 3, "Alter", creations=[ACL]),
    on_cluster("DeleteAcls", 3, "Alter", filters=[{**ANY_ACL, "principal_filter": "User:nobody"}]),
    asked("DescribeConfigs", 4, "DescribeConfigs Topic", [TOPIC_REFUSED], lambda n: _config(TOPIC, n.topic)),
    asked("DescribeConfigs", 4, "DescribeConfigs Group", [GROUP_REFUSED], lambda n: _config(GROUP, n.group)),
    asked("DescribeConfigs", 4, "DescribeConfigs Cluster", [CLUSTER_REFUSED], lambda _: _config(BROKER, "")),
    asked("AlterConfigs", 2, "AlterConfigs Topic", [TOPIC_REFUSED], lambda n: _config(TOPIC, n.topic, **SET)),
    asked("AlterConfigs", 2, "AlterConfigs Group", [GROUP_REFUSED], lambda n: _config(GROUP, n.group, **SET_ON_GROUP)),
    asked("AlterConfigs", 2, "AlterConfigs Cluster", [CLUSTER_REFUSED], lambda _: _config(BROKER, "", configs=[])),
    asked(
        "IncrementalAlterConfigs", 1, "AlterConfigs Topic", [TOPIC_REFUSED], lambda n: _config(TOPIC, n.topic, **SET)
    ),
    asked(
        "IncrementalAlterConfigs",
        1,
        "AlterConfigs Group",
        [GROUP_REFUSED],
        lambda n: _config(GROUP, n.group, **SET_ON_GROUP),
    ),
    asked(
        "IncrementalAlterConfigs",
        1,
        "AlterConfigs Cluster",
        [CLUSTER_REFUSED],
        lambda _: _config(BROKER, "", configs=[]),
    ),
    on_cluster(
        "AlterReplicaLogDirs",
        2,
        "Alter",
        ErrorCode.LOG_DIR_NOT_FOUND,
        dirs=[{"path": "/no", "topics": [{"name": NAME, "partitions": [0]}]}],
    ),
    on_cluster("DescribeLogDirs", 4, "Describe", topics=None),
    asked(
        "CreatePartitions",
        3,
        "Alter Topic",
        [TOPIC_REFUSED],
        lambda n: {"topics": [{"name": n.topic, "count": 3, "assignments": None}]},
    ),
    asked("DeleteGroups", 2, "Delete Group", [GROUP_REFUSED], lambda n: {"groups_names": [n.group]}),
    on_cluster(
        "ElectLeaders", 2, "Alter", ErrorCode.ELECTION_NOT_NEEDED, topic_partitions=[{"topic": NAME, "partitions": [0]}]
    ),
    on_cluster(
        "AlterPartitionReassignments",
        0,
        "Alter",
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        topics=[{"name": NAME, "partitions": [{"partition_index": 0, "replicas": None}]}],
    ),
    on_cluster("ListPartitionReassignments", 0, "Describe", topics=None),
    asked(
        "OffsetDelete",
        0,
        "Delete Group, Read Topic",
        [GROUP_REFUSED, TOPIC_REFUSED],
        lambda n: {"group_id": n.group, "topics": [{"name": n.topic, "partitions": [{"partition_index": 0}]}]},
    ),
    on_cluster("DescribeClientQuotas", 1, "DescribeConfigs", components=[]),
    on_cluster("AlterClientQuotas", 1, "AlterConfigs", entries=[A_QUOTA], validate_only=True),
    on_cluster("DescribeUserScramCredentials", 0, "Describe", users=None),
    on_cluster("AlterUserScramCredentials", 0, "Alter", ErrorCode.RESOURCE_NOT_FOUND, deletions=[A_PASSWORD]),
    on_cluster(
        "DescribeQuorum",
        2,
        "Describe",
        topics=[{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}],
    ),
    on_cluster("UpdateFeatures", 2, "Alter", feature_updates=[]),
    asked(
        "DescribeProducers",
        0,
        "Read Topic",
        [TOPIC_REFUSED],
        lambda n: {"topics": [{"name": n.topic, "partition_indexes": [0]}]},
    ),
    on_cluster("UnregisterBroker", 0, "Alter", ErrorCode.BROKER_ID_NOT_REGISTERED, broker_id=99),
    asked(
        "DescribeTransactions",
        0,
        "Describe TransactionalId",
        [ID_REFUSED],
        lambda n: {"transactional_ids": [n.transactional_id]},
    ),
    on_cluster("ListConfigResources", 1, "DescribeConfigs", resource_types=[]),
    asked(
        "DescribeTopicPartitions",
        0,
        "Describe Topic",
        [TOPIC_REFUSED],
        lambda n: {"topics": [{"name": n.topic}], "response_partition_limit": 10},
    ),
    on_cluster("AddRaftVoter", 0, "Alter", ErrorCode.INCONSISTENT_CLUSTER_ID, voter_id=9, timeout_ms=100, listeners=[]),
    on_cluster("RemoveRaftVoter", 0, "Alter", ErrorCode.INCONSISTENT_CLUSTER_ID, voter_id=9),
    on_cluster("DescribeNodes", 0, "Describe"),
    on_cluster("AlterNodes", 0, "Alter", FAILS, changes=[]),
    on_cluster(
        "ImportRecords",
        0,
        "ClusterAction",
        ErrorCode.RESOURCE_NOT_FOUND,
        import_id=ZERO_ID,
        partitions=[{"topic_id": ZERO_ID}],
    ),
    on_cluster("DescribeImage", 0, "ClusterAction"),
    on_cluster("AlterImport", 0, "Alter", FAILS, import_id=ZERO_ID, action=99),
    on_cluster(
        "FetchImported",
        0,
        "ClusterAction",
        ErrorCode.RESOURCE_NOT_FOUND,
        import_id=ZERO_ID,
        partitions=[{"topic_id": ZERO_ID}],
    ),
    on_cluster("ImportSecurity", 0, "Alter", ErrorCode.RESOURCE_NOT_FOUND, import_id=ZERO_ID),
    on_cluster("HoldCommits", 0, "ClusterAction", hold=99),
    asked(
        "SampleTable",
        0,
        "Read Topic",
        [TOPIC_REFUSED],
        lambda n: {"pipeline": "p", "topic": n.topic, "rows": 1, "timeout_ms": 0},
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # no pipeline has told of itself
    ),
    asked(
        "AnswerSamples",
        0,
        "Write Topic",
        [TOPIC_REFUSED],
        lambda n: {"pipeline": "p", "answers": [{"id": ZERO_ID, "sample": b"{}"}]},
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ),
)
