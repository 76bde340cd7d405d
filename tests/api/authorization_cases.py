"""A request of each API, with the permissions that it needs and the errors that it gets without them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from chronik.ids import ZERO_ID
from chronik.protocol.batch import NO_PRODUCER_ID
from chronik.protocol.errors import ErrorCode
from chronik.protocol.permissions import RequiredPermission, parse_permissions
from chronik.protocol.records import Record, encode_batch

TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TRANSACTIONAL_ID_DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


NAME = "NAME"


class ResourceNames(NamedTuple):
    topic: str
    group: str
    transactional_id: str
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = 0


class AuthorizationCase(NamedTuple):
    api: str
    version: int
    needs: dict[RequiredPermission, ErrorCode]
    """The error code for each missing permission; all of them are needed."""
    values: Callable[[ResourceNames], dict[str, Any]]
    later_errors: frozenset[ErrorCode] = frozenset()
    """Errors that an authorized request may still get, because it passed authorization."""


def case(
    api: str,
    version: int,
    needs: str,
    denials: list[ErrorCode],
    values: Callable[[ResourceNames], dict[str, Any]],
    *then: ErrorCode,
) -> AuthorizationCase:
    return AuthorizationCase(
        api, version, dict(zip(parse_permissions(needs), denials, strict=True)), values, frozenset(then)
    )


def on_cluster(api: str, version: int, operation: str, /, *then: ErrorCode, **values: Any) -> AuthorizationCase:
    """Return a case that needs one permission on the cluster; NAME in a value stands for a topic name."""
    return case(api, version, f"{operation} Cluster", [CLUSTER_DENIED], lambda n: _replace_name(values, n.topic), *then)


def _replace_name(value: Any, topic: str) -> Any:
    if isinstance(value, dict):
        return {key: _replace_name(each, topic) for key, each in value.items()}
    if isinstance(value, list):
        return [_replace_name(each, topic) for each in value]
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
QUOTA: Final = {
    "entity": [{"entity_type": "user", "entity_name": "u"}],
    "ops": [{"key": "consumer_byte_rate", "value": 1.0, "remove": False}],
}
CREDENTIAL: Final = {"name": "nobody", "mechanism": 1}


def transactional_batch(names: ResourceNames) -> bytes:
    producer: dict[str, Any] = {
        "producer_id": names.producer_id,
        "producer_epoch": names.producer_epoch,
        "base_sequence": 0,
    }
    return encode_batch([Record(0, -1, None, b"v")], transactional=True, **producer)


def _offset_commit_values(names: ResourceNames) -> dict[str, Any]:
    partition = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
    return {"group_id": names.group, "topics": [{"name": names.topic, "partitions": [partition]}]}


def _producer_values(names: ResourceNames) -> dict[str, Any]:
    return {
        "transactional_id": names.transactional_id,
        "producer_id": names.producer_id,
        "producer_epoch": names.producer_epoch,
    }


def _produce_values(names: ResourceNames, records: bytes) -> dict[str, Any]:
    partition = {"index": 0, "records": records}
    return {"acks": -1, "timeout_ms": 9000, "topic_data": [{"name": names.topic, "partition_data": [partition]}]}


def _config_values(kind: int, name: str, **more: Any) -> dict[str, Any]:
    return {"resources": [{"resource_type": kind, "resource_name": name, **more}]}


def _epoch_values(names: ResourceNames) -> dict[str, Any]:
    return {"topics": [{"topic": names.topic, "partitions": [{"partition": 0, "leader_epoch": 0}]}]}


def _create_topic_values(names: ResourceNames) -> dict[str, Any]:
    return {"topics": [{"name": names.topic, "num_partitions": 1, "replication_factor": 1}]}


TOPIC, BROKER, GROUP = 2, 4, 32
SET: Final = {"configs": [{"name": "retention.ms", "value": "60000"}]}
SET_ON_GROUP: Final = {"configs": [{"name": "consumer.session.timeout.ms", "value": "50000"}]}

CASES: Final = (
    case("Produce", 9, "Write Topic", [TOPIC_DENIED], lambda n: _produce_values(n, BATCH)),
    case(
        "Produce",
        9,
        "Write Topic, Write TransactionalId",
        [TOPIC_DENIED, TRANSACTIONAL_ID_DENIED],
        lambda n: {"transactional_id": n.transactional_id, **_produce_values(n, transactional_batch(n))},
        ErrorCode.INVALID_TXN_STATE,
    ),
    case(
        "Produce",
        9,
        "Write Topic, ClusterAction Cluster",
        [TOPIC_DENIED, ErrorCode.INVALID_TOPIC_EXCEPTION],
        lambda n: _produce_values(n._replace(topic="__consumer_offsets"), BATCH),
        ErrorCode.INVALID_RECORD,
    ),
    case(
        "Fetch",
        12,
        "Read Topic",
        [TOPIC_DENIED],
        lambda n: {"topics": [{"topic": n.topic, "partitions": [{"partition": 0, "partition_max_bytes": 1 << 20}]}]},
    ),
    case(
        "ListOffsets",
        7,
        "Describe Topic",
        [TOPIC_DENIED],
        lambda n: {
            "replica_id": -1,
            "topics": [{"name": n.topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}],
        },
    ),
    case(
        "Metadata",
        12,
        "Describe Topic",
        [TOPIC_DENIED],
        lambda n: {"topics": [{"name": n.topic}], "allow_auto_topic_creation": False},
    ),
    case("OffsetCommit", 8, "Read Group, Read Topic", [GROUP_DENIED, TOPIC_DENIED], _offset_commit_values),
    case(
        "OffsetFetch",
        8,
        "Describe Group, Describe Topic",
        [GROUP_DENIED, TOPIC_DENIED],
        lambda n: {"groups": [{"group_id": n.group, "topics": [{"name": n.topic, "partition_indexes": [0]}]}]},
    ),
    case(
        "OffsetFetch",
        1,
        "Describe Group, Describe Topic",
        [GROUP_DENIED, TOPIC_DENIED],
        lambda n: {"group_id": n.group, "topics": [{"name": n.topic, "partition_indexes": [0]}]},
    ),
    case("FindCoordinator", 4, "Describe Group", [GROUP_DENIED], lambda n: {"coordinator_keys": [n.group]}),
    case(
        "FindCoordinator",
        4,
        "Describe TransactionalId",
        [TRANSACTIONAL_ID_DENIED],
        lambda n: {"key_type": 1, "coordinator_keys": [n.transactional_id]},
    ),
    case(
        "JoinGroup",
        5,
        "Read Group",
        [GROUP_DENIED],
        lambda n: {
            "group_id": n.group,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        },
        ErrorCode.MEMBER_ID_REQUIRED,
    ),
    case(
        "Heartbeat",
        3,
        "Read Group",
        [GROUP_DENIED],
        lambda n: {"group_id": n.group, "member_id": "m"},
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    case(
        "LeaveGroup",
        3,
        "Read Group",
        [GROUP_DENIED],
        lambda n: {"group_id": n.group, "members": [{"member_id": "m"}]},
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    case(
        "SyncGroup",
        3,
        "Read Group",
        [GROUP_DENIED],
        lambda n: {"group_id": n.group, "member_id": "m"},
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    case("DescribeGroups", 5, "Describe Group", [GROUP_DENIED], lambda n: {"groups": [n.group]}),
    case("CreateTopics", 7, "Create Topic", [TOPIC_DENIED], _create_topic_values, ErrorCode.TOPIC_ALREADY_EXISTS),
    case("CreateTopics", 7, "Create Cluster", [TOPIC_DENIED], _create_topic_values, ErrorCode.TOPIC_ALREADY_EXISTS),
    case("DeleteTopics", 6, "Delete Topic", [TOPIC_DENIED], lambda n: {"topics": [{"name": n.topic}]}),
    case("DeleteTopics", 3, "Delete Topic", [TOPIC_DENIED], lambda n: {"topic_names": [n.topic]}),
    case(
        "DeleteRecords",
        2,
        "Delete Topic",
        [TOPIC_DENIED],
        lambda n: {
            "topics": [{"name": n.topic, "partitions": [{"partition_index": 0, "offset": 0}]}],
            "timeout_ms": 9000,
        },
    ),
    case(
        "InitProducerId",
        4,
        "Write TransactionalId",
        [TRANSACTIONAL_ID_DENIED],
        lambda n: {"transactional_id": n.transactional_id, "transaction_timeout_ms": 60_000},
    ),
    case("InitProducerId", 4, "Write Topic", [CLUSTER_DENIED], lambda _: {"transactional_id": None}),
    case("InitProducerId", 4, "IdempotentWrite Cluster", [CLUSTER_DENIED], lambda _: {"transactional_id": None}),
    case("OffsetForLeaderEpoch", 4, "Describe Topic", [TOPIC_DENIED], _epoch_values),
    case("OffsetForLeaderEpoch", 4, "ClusterAction Cluster", [TOPIC_DENIED], _epoch_values),
    case(
        "AddPartitionsToTxn",
        3,
        "Write TransactionalId, Write Topic",
        [TRANSACTIONAL_ID_DENIED, TOPIC_DENIED],
        lambda n: {**_producer_values(n), "topics": [{"name": n.topic, "partitions": [0]}]},
    ),
    on_cluster("AddPartitionsToTxn", 5, "ClusterAction", transactions=[]),
    case(
        "AddOffsetsToTxn",
        3,
        "Write TransactionalId, Read Group",
        [TRANSACTIONAL_ID_DENIED, GROUP_DENIED],
        lambda n: {**_producer_values(n), "group_id": n.group},
    ),
    case(
        "EndTxn",
        3,
        "Write TransactionalId",
        [TRANSACTIONAL_ID_DENIED],
        lambda n: {**_producer_values(n), "committed": True},
        ErrorCode.INVALID_TXN_STATE,
    ),
    on_cluster("WriteTxnMarkers", 1, "ClusterAction", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, markers=[MARKER]),
    on_cluster("WriteTxnMarkers", 1, "Alter", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, markers=[MARKER]),
    case(
        "TxnOffsetCommit",
        3,
        "Write TransactionalId, Read Group, Read Topic",
        [TRANSACTIONAL_ID_DENIED, GROUP_DENIED, TOPIC_DENIED],
        lambda n: {**_producer_values(n), **_offset_commit_values(n)},
        ErrorCode.INVALID_TXN_STATE,
    ),
    on_cluster("DescribeAcls", 3, "Describe", **ANY_ACL),
    on_cluster("CreateAcls", 3, "Alter", creations=[ACL]),
    on_cluster("DeleteAcls", 3, "Alter", filters=[{**ANY_ACL, "principal_filter": "User:nobody"}]),
    case("DescribeConfigs", 4, "DescribeConfigs Topic", [TOPIC_DENIED], lambda n: _config_values(TOPIC, n.topic)),
    case("DescribeConfigs", 4, "DescribeConfigs Group", [GROUP_DENIED], lambda n: _config_values(GROUP, n.group)),
    case("DescribeConfigs", 4, "DescribeConfigs Cluster", [CLUSTER_DENIED], lambda _: _config_values(BROKER, "")),
    case("AlterConfigs", 2, "AlterConfigs Topic", [TOPIC_DENIED], lambda n: _config_values(TOPIC, n.topic, **SET)),
    case(
        "AlterConfigs",
        2,
        "AlterConfigs Group",
        [GROUP_DENIED],
        lambda n: _config_values(GROUP, n.group, **SET_ON_GROUP),
    ),
    case("AlterConfigs", 2, "AlterConfigs Cluster", [CLUSTER_DENIED], lambda _: _config_values(BROKER, "", configs=[])),
    case(
        "IncrementalAlterConfigs",
        1,
        "AlterConfigs Topic",
        [TOPIC_DENIED],
        lambda n: _config_values(TOPIC, n.topic, **SET),
    ),
    case(
        "IncrementalAlterConfigs",
        1,
        "AlterConfigs Group",
        [GROUP_DENIED],
        lambda n: _config_values(GROUP, n.group, **SET_ON_GROUP),
    ),
    case(
        "IncrementalAlterConfigs",
        1,
        "AlterConfigs Cluster",
        [CLUSTER_DENIED],
        lambda _: _config_values(BROKER, "", configs=[]),
    ),
    on_cluster(
        "AlterReplicaLogDirs",
        2,
        "Alter",
        ErrorCode.LOG_DIR_NOT_FOUND,
        dirs=[{"path": "/no", "topics": [{"name": NAME, "partitions": [0]}]}],
    ),
    on_cluster("DescribeLogDirs", 4, "Describe", topics=None),
    case(
        "CreatePartitions",
        3,
        "Alter Topic",
        [TOPIC_DENIED],
        lambda n: {"topics": [{"name": n.topic, "count": 3, "assignments": None}]},
    ),
    case("DeleteGroups", 2, "Delete Group", [GROUP_DENIED], lambda n: {"groups_names": [n.group]}),
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
    case(
        "OffsetDelete",
        0,
        "Delete Group, Read Topic",
        [GROUP_DENIED, TOPIC_DENIED],
        lambda n: {"group_id": n.group, "topics": [{"name": n.topic, "partitions": [{"partition_index": 0}]}]},
    ),
    on_cluster("DescribeClientQuotas", 1, "DescribeConfigs", components=[]),
    on_cluster("AlterClientQuotas", 1, "AlterConfigs", entries=[QUOTA], validate_only=True),
    on_cluster("DescribeUserScramCredentials", 0, "Describe", users=None),
    on_cluster("AlterUserScramCredentials", 0, "Alter", ErrorCode.RESOURCE_NOT_FOUND, deletions=[CREDENTIAL]),
    on_cluster(
        "DescribeQuorum",
        2,
        "Describe",
        topics=[{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}],
    ),
    on_cluster("UpdateFeatures", 2, "Alter", feature_updates=[]),
    case(
        "DescribeProducers",
        0,
        "Read Topic",
        [TOPIC_DENIED],
        lambda n: {"topics": [{"name": n.topic, "partition_indexes": [0]}]},
    ),
    on_cluster("UnregisterBroker", 0, "Alter", ErrorCode.BROKER_ID_NOT_REGISTERED, broker_id=99),
    case(
        "DescribeTransactions",
        0,
        "Describe TransactionalId",
        [TRANSACTIONAL_ID_DENIED],
        lambda n: {"transactional_ids": [n.transactional_id]},
    ),
    on_cluster("ListConfigResources", 1, "DescribeConfigs", resource_types=[]),
    case(
        "DescribeTopicPartitions",
        0,
        "Describe Topic",
        [TOPIC_DENIED],
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
    on_cluster("DescribeHealth", 0, "Describe"),
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
    on_cluster("ImportSchemas", 0, "Alter", ErrorCode.RESOURCE_NOT_FOUND, import_id=ZERO_ID),
    on_cluster("HoldCommits", 0, "ClusterAction", hold=99),
    case(
        "SampleTable",
        0,
        "Read Topic",
        [TOPIC_DENIED],
        lambda n: {"pipeline": "p", "topic": n.topic, "rows": 1, "timeout_ms": 0},
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # no pipeline has reported itself
    ),
    case(
        "AnswerSamples",
        0,
        "Write Topic",
        [TOPIC_DENIED],
        lambda n: {"pipeline": "p", "answers": [{"id": ZERO_ID, "sample": b"{}"}]},
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ),
)
