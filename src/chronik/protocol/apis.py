"""The APIs we speak, a line each. ApiVersions answers, headers, dispatch and permissions all start here.

To add one: declare its messages in `protocol/messages`, handle it in `api`, both in a file that has its name, and write
its line here. Only the declaration of the messages says which versions are spoken.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from chronik.errors import invariant
from chronik.protocol.schema import Request, Response, Versions

if TYPE_CHECKING:
    from chronik.protocol.permissions import Need


class Asked(Enum):
    """Which node an API is meant for. From it follows what a node answers that is cut off from the others, or may be
    behind them: see `chronik.api.shared.admission`."""

    NODE = auto()
    """Any node. It answers even when it is cut off, or its handler decides itself whether it may."""
    METADATA = auto()
    """Any node, which answers from what the cluster has agreed on."""
    LEADER = auto()
    """The leader of a partition."""
    COORDINATOR = auto()
    """The coordinator of a group or of a transactional id, which changes it."""
    COORDINATOR_STATE = auto()
    """The coordinator of a group or of a transactional id, which only reports its state."""
    OFFSETS = auto()
    """In Kafka the coordinator of a group, here any node: all of them have all offsets."""


class Api(NamedTuple):
    key: int
    name: str
    module: str
    """The name of the two modules that declare its messages and handle it: `offset_commit` for `OffsetCommit`."""
    request: type[Request]
    response: type[Response]
    versions: Versions
    flexible: Versions
    asked: Asked
    permissions: str
    """What a client must be allowed to do with the resources that its request names, as in Kafka's documentation: not
    every request needs all of them, and some need one or the other."""

    @property
    def needs(self) -> tuple[Need, ...]:
        """The same, parsed."""
        from chronik.protocol.permissions import parse_needs  # a node starts without

        return parse_needs(self.permissions)

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


def _api(name: str, asked: Asked, permissions: str) -> Api:
    module = "".join(f"_{character.lower()}" if character.isupper() else character for character in name)[1:]
    messages = import_module(f"chronik.protocol.messages.{module}")
    request, response = getattr(messages, f"{name}Request"), getattr(messages, f"{name}Response")
    schema = request.__schema__
    invariant(schema[2:] == response.__schema__[2:], f"{name}'s request and response differ in key or versions")
    key, versions, flexible = schema[2:]
    return Api(key, name, module, request, response, versions, flexible, asked, permissions)


_APIS: Final = (
    # Produce and Fetch check themselves whether their node leads: one must know what it refused, the other may wait.
    _api("Produce", Asked.NODE, "Write Topic, Write TransactionalId, IdempotentWrite Cluster"),
    _api("Fetch", Asked.NODE, "Read Topic, ClusterAction Cluster"),
    _api("ListOffsets", Asked.LEADER, "Describe Topic"),
    _api("Metadata", Asked.METADATA, "Describe Topic, Create Topic, Create Cluster"),
    _api("OffsetCommit", Asked.COORDINATOR, "Read Group, Read Topic"),
    _api("OffsetFetch", Asked.OFFSETS, "Describe Group, Describe Topic"),
    _api("FindCoordinator", Asked.COORDINATOR_STATE, "Describe Group, Describe TransactionalId"),
    _api("JoinGroup", Asked.COORDINATOR, "Read Group"),
    _api("Heartbeat", Asked.COORDINATOR, "Read Group"),
    _api("LeaveGroup", Asked.COORDINATOR, "Read Group"),
    _api("SyncGroup", Asked.COORDINATOR, "Read Group"),
    _api("DescribeGroups", Asked.COORDINATOR_STATE, "Describe Group"),
    _api("ListGroups", Asked.COORDINATOR_STATE, "Describe Cluster, Describe Group"),
    _api("SaslHandshake", Asked.NODE, ""),
    _api("ApiVersions", Asked.NODE, ""),
    _api("CreateTopics", Asked.NODE, "Create Cluster, Create Topic, DescribeConfigs Topic"),
    _api("DeleteTopics", Asked.NODE, "Delete Topic, Describe Topic"),
    _api("DeleteRecords", Asked.LEADER, "Delete Topic"),
    # It may be asked of any node, or of the coordinator of a transactional id.
    _api("InitProducerId", Asked.NODE, "Write TransactionalId, IdempotentWrite Cluster, Write Topic"),
    _api("OffsetForLeaderEpoch", Asked.LEADER, "Describe Topic, ClusterAction Cluster"),
    _api("AddPartitionsToTxn", Asked.COORDINATOR, "Write TransactionalId, Write Topic, ClusterAction Cluster"),
    _api("AddOffsetsToTxn", Asked.COORDINATOR, "Write TransactionalId, Read Group"),
    _api("EndTxn", Asked.COORDINATOR, "Write TransactionalId"),
    _api("WriteTxnMarkers", Asked.LEADER, "Alter Cluster, ClusterAction Cluster"),
    _api("TxnOffsetCommit", Asked.COORDINATOR, "Write TransactionalId, Read Group, Read Topic"),
    _api("DescribeAcls", Asked.NODE, "Describe Cluster"),
    _api("CreateAcls", Asked.NODE, "Alter Cluster"),
    _api("DeleteAcls", Asked.NODE, "Alter Cluster"),
    _api("DescribeConfigs", Asked.METADATA, "DescribeConfigs Cluster, DescribeConfigs Topic, DescribeConfigs Group"),
    _api("AlterConfigs", Asked.NODE, "AlterConfigs Cluster, AlterConfigs Topic, AlterConfigs Group"),
    _api("AlterReplicaLogDirs", Asked.NODE, "Alter Cluster"),
    _api("DescribeLogDirs", Asked.NODE, "Describe Cluster"),
    _api("SaslAuthenticate", Asked.NODE, ""),
    _api("CreatePartitions", Asked.NODE, "Alter Topic"),
    _api("DeleteGroups", Asked.COORDINATOR, "Delete Group"),
    _api("ElectLeaders", Asked.NODE, "Alter Cluster"),
    _api("IncrementalAlterConfigs", Asked.NODE, "AlterConfigs Cluster, AlterConfigs Topic, AlterConfigs Group"),
    _api("AlterPartitionReassignments", Asked.NODE, "Alter Cluster"),
    _api("ListPartitionReassignments", Asked.METADATA, "Describe Cluster"),
    _api("OffsetDelete", Asked.COORDINATOR, "Delete Group, Read Topic"),
    _api("DescribeClientQuotas", Asked.NODE, "DescribeConfigs Cluster"),
    _api("DescribeUserScramCredentials", Asked.NODE, "Describe Cluster"),
    _api("DescribeQuorum", Asked.NODE, "Describe Cluster"),
    _api("UpdateFeatures", Asked.NODE, "Alter Cluster"),
    _api("DescribeCluster", Asked.METADATA, "Describe Cluster"),
    _api("DescribeProducers", Asked.LEADER, "Read Topic"),
    _api("DescribeTransactions", Asked.COORDINATOR_STATE, "Describe TransactionalId, Describe Topic"),
    _api("ListTransactions", Asked.COORDINATOR_STATE, "Describe TransactionalId"),
    _api("ListConfigResources", Asked.METADATA, "DescribeConfigs Cluster"),
    _api("DescribeTopicPartitions", Asked.METADATA, "Describe Topic"),
)

APIS: Final[Mapping[int, Api]] = MappingProxyType({api.key: api for api in _APIS})

_KEYS: Final = {api.name: api.key for api in _APIS}
API_VERSIONS_KEY: Final = _KEYS["ApiVersions"]
FETCH_KEY: Final = _KEYS["Fetch"]
PRODUCE_KEY: Final = _KEYS["Produce"]
