"""Who handles which API: a module of this package each, which handles a request and tells of its failure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from chronik.api import (
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    api_versions,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_quorum,
    describe_topic_partitions,
    describe_user_scram_credentials,
    elect_leaders,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sasl_authenticate,
    sasl_handshake,
    sync_group,
)
from chronik.api.context import Context, Pipelined, Services
from chronik.api.long_answers import Long
from chronik.protocol.apis import APIS
from chronik.protocol.errors import ErrorCode
from chronik.protocol.schema import Response

Answer = Response | Long | None
Outcome = Response | Pipelined | Awaitable[Answer] | None


class Handler(NamedTuple):
    handle: Callable[[Services, Any, Context], Outcome]
    failure: Callable[[Any, ErrorCode], Response]


_MODULES = {
    "Produce": produce,
    "Fetch": fetch,
    "ListOffsets": list_offsets,
    "Metadata": metadata,
    "OffsetCommit": offset_commit,
    "OffsetFetch": offset_fetch,
    "FindCoordinator": find_coordinator,
    "JoinGroup": join_group,
    "Heartbeat": heartbeat,
    "LeaveGroup": leave_group,
    "SyncGroup": sync_group,
    "DescribeGroups": describe_groups,
    "ListGroups": list_groups,
    "DeleteGroups": delete_groups,
    "OffsetDelete": offset_delete,
    "ApiVersions": api_versions,
    "CreateTopics": create_topics,
    "DeleteTopics": delete_topics,
    "DeleteRecords": delete_records,
    "InitProducerId": init_producer_id,
    "OffsetForLeaderEpoch": offset_for_leader_epoch,
    "DescribeConfigs": describe_configs,
    "AlterConfigs": alter_configs,
    "AlterReplicaLogDirs": alter_replica_log_dirs,
    "DescribeLogDirs": describe_log_dirs,
    "CreatePartitions": create_partitions,
    "ElectLeaders": elect_leaders,
    "AlterPartitionReassignments": alter_partition_reassignments,
    "ListPartitionReassignments": list_partition_reassignments,
    "IncrementalAlterConfigs": incremental_alter_configs,
    "DescribeQuorum": describe_quorum,
    "DescribeCluster": describe_cluster,
    "ListConfigResources": list_config_resources,
    "DescribeTopicPartitions": describe_topic_partitions,
    "SaslHandshake": sasl_handshake,
    "SaslAuthenticate": sasl_authenticate,
    "DescribeAcls": describe_acls,
    "CreateAcls": create_acls,
    "DeleteAcls": delete_acls,
    "DescribeClientQuotas": describe_client_quotas,
    "DescribeUserScramCredentials": describe_user_scram_credentials,
}
HANDLERS: dict[int, Handler] = {
    api.key: Handler(_MODULES[api.name].handle, _MODULES[api.name].failure) for api in APIS.values()
}
