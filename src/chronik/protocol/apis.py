"""The APIs we speak, derived from their declarations. ApiVersions answers, headers and dispatch all start here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from chronik.errors import invariant
from chronik.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from chronik.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from chronik.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from chronik.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from chronik.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from chronik.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from chronik.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from chronik.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from chronik.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from chronik.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from chronik.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from chronik.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from chronik.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from chronik.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from chronik.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from chronik.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from chronik.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from chronik.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from chronik.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from chronik.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from chronik.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from chronik.protocol.messages.fetch import FetchRequest, FetchResponse
from chronik.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from chronik.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from chronik.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from chronik.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from chronik.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from chronik.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from chronik.protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from chronik.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from chronik.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from chronik.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from chronik.protocol.messages.metadata import MetadataRequest, MetadataResponse
from chronik.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from chronik.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from chronik.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from chronik.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from chronik.protocol.messages.produce import ProduceRequest, ProduceResponse
from chronik.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from chronik.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from chronik.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from chronik.protocol.schema import Request, Response, Versions


class Api(NamedTuple):
    key: int
    name: str
    request: type[Request]
    response: type[Response]
    versions: Versions
    flexible: Versions

    @property
    def min_version(self) -> int:
        return self.versions.first

    @property
    def max_version(self) -> int:
        return self.versions.last

    @property
    def first_flexible(self) -> int:
        """The first version with compact strings, tagged fields and the longer headers."""
        return self.flexible.first


def _api(request: type[Request], response: type[Response]) -> Api:
    asked, answered = request.__schema__, response.__schema__
    invariant(asked[2:] == answered[2:], f"{asked.name} and {answered.name} differ in key or versions")
    name = asked.name.removesuffix("Request")
    return Api(asked.api_key, name, request, response, asked.versions, asked.flexible)


_PAIRS: Final[tuple[tuple[type[Request], type[Response]], ...]] = (
    (ProduceRequest, ProduceResponse),
    (FetchRequest, FetchResponse),
    (ListOffsetsRequest, ListOffsetsResponse),
    (MetadataRequest, MetadataResponse),
    (OffsetCommitRequest, OffsetCommitResponse),
    (OffsetFetchRequest, OffsetFetchResponse),
    (FindCoordinatorRequest, FindCoordinatorResponse),
    (JoinGroupRequest, JoinGroupResponse),
    (HeartbeatRequest, HeartbeatResponse),
    (LeaveGroupRequest, LeaveGroupResponse),
    (SyncGroupRequest, SyncGroupResponse),
    (DescribeGroupsRequest, DescribeGroupsResponse),
    (ListGroupsRequest, ListGroupsResponse),
    (SaslHandshakeRequest, SaslHandshakeResponse),
    (ApiVersionsRequest, ApiVersionsResponse),
    (CreateTopicsRequest, CreateTopicsResponse),
    (DeleteTopicsRequest, DeleteTopicsResponse),
    (DeleteRecordsRequest, DeleteRecordsResponse),
    (InitProducerIdRequest, InitProducerIdResponse),
    (OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse),
    (DescribeAclsRequest, DescribeAclsResponse),
    (CreateAclsRequest, CreateAclsResponse),
    (DeleteAclsRequest, DeleteAclsResponse),
    (DescribeConfigsRequest, DescribeConfigsResponse),
    (AlterConfigsRequest, AlterConfigsResponse),
    (AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse),
    (DescribeLogDirsRequest, DescribeLogDirsResponse),
    (SaslAuthenticateRequest, SaslAuthenticateResponse),
    (CreatePartitionsRequest, CreatePartitionsResponse),
    (DeleteGroupsRequest, DeleteGroupsResponse),
    (ElectLeadersRequest, ElectLeadersResponse),
    (IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse),
    (AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse),
    (ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse),
    (OffsetDeleteRequest, OffsetDeleteResponse),
    (DescribeClientQuotasRequest, DescribeClientQuotasResponse),
    (DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse),
    (DescribeQuorumRequest, DescribeQuorumResponse),
    (DescribeClusterRequest, DescribeClusterResponse),
    (ListConfigResourcesRequest, ListConfigResourcesResponse),
    (DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse),
)

APIS: Final[Mapping[int, Api]] = MappingProxyType({api.key: api for api in (_api(*pair) for pair in _PAIRS)})

API_VERSIONS_KEY: Final = ApiVersionsRequest.__schema__.api_key
FETCH_KEY: Final = FetchRequest.__schema__.api_key
PRODUCE_KEY: Final = ProduceRequest.__schema__.api_key
