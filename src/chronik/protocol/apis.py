"""The table of supported APIs, which determines the ApiVersions response, headers, dispatch and permissions.

To add an API, declare its messages in `protocol/messages` and its handler in `api`, both in a module named after the
API, and add a line here. Only that line has the API's key and versions; messages are assigned to it by their names.

The table does not import the message declarations, so a node starts faster. They are imported by name: see
`REQUESTS` and `RESPONSES` in `chronik.protocol.codec`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from chronik.protocol.permissions import RequiredPermission

LAST_VERSION: Final = 0x7FFF  # api versions are int16 on the wire, so "3+" ends here


class VersionRange(NamedTuple):
    """An inclusive range of API versions, written as "3", "0-12", "9+" or "none"."""

    first: int
    last: int

    def covers(self, version: int) -> bool:
        """Return whether the range includes the version."""
        return self.first <= version <= self.last

    @staticmethod
    @cache
    def parse(text: str | None) -> VersionRange:
        """Parse a version range. None is parsed as the empty range."""
        if text is None or text == "none":
            return VersionRange(LAST_VERSION, 0)
        if text.endswith("+"):
            return VersionRange(int(text[:-1]), LAST_VERSION)
        first, _, last = text.partition("-")
        return VersionRange(int(first), int(last or first))


CHRONIK_KEYS_START: Final = 20_000
"""The first API key of Chronik's own APIs, which ApiVersions responses do not list."""


class ApiTarget(Enum):
    """The kind of node to which a client sends an API's requests.

    It determines the response of a node that is isolated or may lag behind: see `chronik.api.shared.read_consistency`.
    """

    NODE = auto()
    """Any node, even one that is isolated from the cluster."""
    METADATA = auto()
    """Any node, because the response consists of cluster metadata."""
    LEADER = auto()
    """The leader of a partition."""
    COORDINATOR = auto()
    """The coordinator of a group or transactional id, whose state the API changes."""
    COORDINATOR_STATE = auto()
    """The coordinator of a group or transactional id, whose state the API only reads."""
    COORDINATOR_LOOKUP = auto()
    """Any node, because the API finds the coordinator of a group or transactional id."""
    OFFSETS = auto()
    """Any node, because all nodes have all committed offsets. In Kafka, this is the group coordinator."""


class Api(NamedTuple):
    """An API of the Kafka protocol or of Chronik, with its key, versions and required permissions."""

    key: int
    name: str
    module: str
    """The name of the modules that contain the API's messages and its handler, such as `offset_commit`."""
    versions: VersionRange
    flexible: VersionRange
    """The API versions whose messages use compact strings and tagged fields (flexible versions)."""
    target: ApiTarget
    permissions: str
    """The permissions that requests of the API may require, in the notation of Kafka's documentation.

    A request may require only some of them, or one of several.
    """

    @property
    def required_permissions(self) -> tuple[RequiredPermission, ...]:
        """The permissions that the API may require, parsed from `permissions`."""
        from chronik.protocol.permissions import parse_permissions  # imported lazily for a faster start

        return parse_permissions(self.permissions)

    @property
    def is_kafka_api(self) -> bool:
        return self.key < CHRONIK_KEYS_START

    @property
    def min_version(self) -> int:
        return self.versions.first

    @property
    def max_version(self) -> int:
        return self.versions.last

    @property
    def first_flexible(self) -> int:
        return self.flexible.first


def _api(key: int, name: str, versions: str, flexible: str, asked: ApiTarget, permissions: str) -> Api:
    module = "".join(f"_{character.lower()}" if character.isupper() else character for character in name)[1:]
    return Api(key, name, module, VersionRange.parse(versions), VersionRange.parse(flexible), asked, permissions)


_APIS: Final = (
    # Produce and Fetch check leadership themselves: Produce remembers rejected batches, and Fetch may wait.
    _api(0, "Produce", "0-13", "9+", ApiTarget.NODE, "Write Topic, Write TransactionalId, ClusterAction Cluster"),
    _api(1, "Fetch", "0-18", "12+", ApiTarget.NODE, "Read Topic"),
    _api(2, "ListOffsets", "0-11", "6+", ApiTarget.LEADER, "Describe Topic"),
    _api(3, "Metadata", "0-13", "9+", ApiTarget.METADATA, "Describe Topic, Create Topic, Create Cluster"),
    _api(8, "OffsetCommit", "0-10", "8+", ApiTarget.COORDINATOR, "Read Group, Read Topic"),
    _api(9, "OffsetFetch", "0-10", "6+", ApiTarget.OFFSETS, "Describe Group, Describe Topic"),
    _api(10, "FindCoordinator", "0-6", "3+", ApiTarget.COORDINATOR_LOOKUP, "Describe Group, Describe TransactionalId"),
    _api(11, "JoinGroup", "0-9", "6+", ApiTarget.COORDINATOR, "Read Group"),
    _api(12, "Heartbeat", "0-4", "4+", ApiTarget.COORDINATOR, "Read Group"),
    _api(13, "LeaveGroup", "0-5", "4+", ApiTarget.COORDINATOR, "Read Group"),
    _api(14, "SyncGroup", "0-5", "4+", ApiTarget.COORDINATOR, "Read Group"),
    _api(15, "DescribeGroups", "0-6", "5+", ApiTarget.COORDINATOR_STATE, "Describe Group"),
    _api(16, "ListGroups", "0-5", "3+", ApiTarget.COORDINATOR_STATE, "Describe Cluster, Describe Group"),
    _api(17, "SaslHandshake", "0-1", "none", ApiTarget.NODE, ""),
    _api(18, "ApiVersions", "0-4", "3+", ApiTarget.NODE, ""),
    _api(19, "CreateTopics", "0-7", "5+", ApiTarget.NODE, "Create Cluster, Create Topic, DescribeConfigs Topic"),
    _api(20, "DeleteTopics", "0-6", "4+", ApiTarget.NODE, "Delete Topic, Describe Topic"),
    _api(21, "DeleteRecords", "0-2", "2+", ApiTarget.LEADER, "Delete Topic"),
    # Handled by any node, or by the coordinator of a transactional id.
    _api(
        22, "InitProducerId", "0-5", "2+", ApiTarget.NODE, "Write TransactionalId, IdempotentWrite Cluster, Write Topic"
    ),
    _api(23, "OffsetForLeaderEpoch", "0-4", "4+", ApiTarget.LEADER, "Describe Topic, ClusterAction Cluster"),
    _api(
        24,
        "AddPartitionsToTxn",
        "0-5",
        "3+",
        ApiTarget.COORDINATOR,
        "Write TransactionalId, Write Topic, ClusterAction Cluster",
    ),
    _api(25, "AddOffsetsToTxn", "0-4", "3+", ApiTarget.COORDINATOR, "Write TransactionalId, Read Group"),
    _api(26, "EndTxn", "0-5", "3+", ApiTarget.COORDINATOR, "Write TransactionalId"),
    _api(27, "WriteTxnMarkers", "0-2", "1+", ApiTarget.LEADER, "Alter Cluster, ClusterAction Cluster"),
    _api(28, "TxnOffsetCommit", "0-5", "3+", ApiTarget.COORDINATOR, "Write TransactionalId, Read Group, Read Topic"),
    _api(29, "DescribeAcls", "0-3", "2+", ApiTarget.METADATA, "Describe Cluster"),
    _api(30, "CreateAcls", "0-3", "2+", ApiTarget.NODE, "Alter Cluster"),
    _api(31, "DeleteAcls", "0-3", "2+", ApiTarget.NODE, "Alter Cluster"),
    _api(
        32,
        "DescribeConfigs",
        "0-4",
        "4+",
        ApiTarget.METADATA,
        "DescribeConfigs Cluster, DescribeConfigs Topic, DescribeConfigs Group",
    ),
    _api(
        33, "AlterConfigs", "0-2", "2+", ApiTarget.NODE, "AlterConfigs Cluster, AlterConfigs Topic, AlterConfigs Group"
    ),
    _api(34, "AlterReplicaLogDirs", "0-2", "2+", ApiTarget.NODE, "Alter Cluster"),
    _api(35, "DescribeLogDirs", "0-5", "2+", ApiTarget.NODE, "Describe Cluster"),
    _api(36, "SaslAuthenticate", "0-2", "2+", ApiTarget.NODE, ""),
    _api(37, "CreatePartitions", "0-3", "2+", ApiTarget.NODE, "Alter Topic"),
    _api(42, "DeleteGroups", "0-2", "2+", ApiTarget.COORDINATOR, "Delete Group"),
    _api(43, "ElectLeaders", "0-2", "2+", ApiTarget.NODE, "Alter Cluster"),
    _api(
        44,
        "IncrementalAlterConfigs",
        "0-1",
        "1+",
        ApiTarget.NODE,
        "AlterConfigs Cluster, AlterConfigs Topic, AlterConfigs Group",
    ),
    _api(45, "AlterPartitionReassignments", "0-1", "0+", ApiTarget.NODE, "Alter Cluster"),
    _api(46, "ListPartitionReassignments", "0", "0+", ApiTarget.METADATA, "Describe Cluster"),
    _api(47, "OffsetDelete", "0", "none", ApiTarget.COORDINATOR, "Delete Group, Read Topic"),
    _api(48, "DescribeClientQuotas", "0-1", "1+", ApiTarget.METADATA, "DescribeConfigs Cluster"),
    _api(49, "AlterClientQuotas", "0-1", "1+", ApiTarget.NODE, "AlterConfigs Cluster"),
    _api(50, "DescribeUserScramCredentials", "0", "0+", ApiTarget.METADATA, "Describe Cluster"),
    _api(51, "AlterUserScramCredentials", "0", "0+", ApiTarget.NODE, "Alter Cluster"),
    _api(55, "DescribeQuorum", "0-2", "0+", ApiTarget.NODE, "Describe Cluster"),
    _api(57, "UpdateFeatures", "0-2", "0+", ApiTarget.NODE, "Alter Cluster"),
    _api(60, "DescribeCluster", "0-2", "0+", ApiTarget.METADATA, "Describe Cluster"),
    _api(61, "DescribeProducers", "0", "0+", ApiTarget.LEADER, "Read Topic"),
    _api(64, "UnregisterBroker", "0", "0+", ApiTarget.NODE, "Alter Cluster"),
    _api(
        65, "DescribeTransactions", "0", "0+", ApiTarget.COORDINATOR_STATE, "Describe TransactionalId, Describe Topic"
    ),
    _api(66, "ListTransactions", "0-2", "0+", ApiTarget.COORDINATOR_STATE, "Describe TransactionalId"),
    _api(74, "ListConfigResources", "0-1", "0+", ApiTarget.METADATA, "DescribeConfigs Cluster"),
    _api(75, "DescribeTopicPartitions", "0", "0+", ApiTarget.METADATA, "Describe Topic"),
    _api(80, "AddRaftVoter", "0-1", "0+", ApiTarget.NODE, "Alter Cluster"),
    _api(81, "RemoveRaftVoter", "0", "0+", ApiTarget.NODE, "Alter Cluster"),
    _api(20000, "DescribeNodes", "0", "0+", ApiTarget.NODE, "Describe Cluster"),
    _api(20001, "AlterNodes", "0", "0+", ApiTarget.NODE, "Alter Cluster"),
    _api(20002, "ImportRecords", "0", "0+", ApiTarget.LEADER, "ClusterAction Cluster"),
    _api(20003, "DescribeImage", "0", "0+", ApiTarget.METADATA, "ClusterAction Cluster"),
    _api(20004, "AlterImport", "0", "0+", ApiTarget.NODE, "Alter Cluster"),
    _api(20005, "FetchImported", "0", "0+", ApiTarget.LEADER, "ClusterAction Cluster"),
    _api(20006, "HoldCommits", "0", "0+", ApiTarget.NODE, "ClusterAction Cluster"),
    _api(20007, "ImportSecurity", "0", "0+", ApiTarget.NODE, "Alter Cluster"),
    _api(20008, "SampleTable", "0", "0+", ApiTarget.LEADER, "Read Topic"),
    _api(20009, "AnswerSamples", "0", "0+", ApiTarget.LEADER, "Write Topic"),
    _api(20010, "ImportSchemas", "0", "0+", ApiTarget.NODE, "Alter Cluster"),
    _api(20011, "DescribeHealth", "0", "0+", ApiTarget.NODE, "Describe Cluster"),
)

APIS: Final[Mapping[int, Api]] = MappingProxyType({api.key: api for api in _APIS})

API_BY_MESSAGE: Final[Mapping[str, Api]] = MappingProxyType(
    {f"{api.name}{kind}": api for api in _APIS for kind in ("Request", "Response")}
)
"""The APIs by the names of their request and response classes."""

KAFKA_APIS: Final[Mapping[int, Api]] = MappingProxyType({api.key: api for api in _APIS if api.is_kafka_api})
"""The APIs that an ApiVersions response lists."""

_KEYS: Final = {api.name: api.key for api in _APIS}
API_VERSIONS_KEY: Final = _KEYS["ApiVersions"]
FETCH_KEY: Final = _KEYS["Fetch"]
METADATA_KEY: Final = _KEYS["Metadata"]
OFFSET_COMMIT_KEY: Final = _KEYS["OffsetCommit"]
PRODUCE_KEY: Final = _KEYS["Produce"]
SASL_AUTHENTICATE_KEY: Final = _KEYS["SaslAuthenticate"]
SASL_HANDSHAKE_KEY: Final = _KEYS["SaslHandshake"]
