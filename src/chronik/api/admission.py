"""Which requests a node may answer now: not every one of them while it is cut off, and some only with a quorum."""

from __future__ import annotations

from chronik.protocol.apis import APIS
from chronik.protocol.errors import ErrorCode

_DATA = {"Produce", "Fetch", "ListOffsets", "OffsetForLeaderEpoch", "DeleteRecords"}
_COORDINATION = {
    "FindCoordinator",
    "JoinGroup",
    "SyncGroup",
    "Heartbeat",
    "LeaveGroup",
    "OffsetCommit",
    "OffsetFetch",
    "DescribeGroups",
    "ListGroups",
    "DeleteGroups",
    "OffsetDelete",
    "InitProducerId",
}
_METADATA_READS = {
    "Metadata",
    "DescribeCluster",
    "DescribeTopicPartitions",
    "DescribeConfigs",
    "ListPartitionReassignments",
    "OffsetFetch",
    "DescribeGroups",
    "ListGroups",
}

FENCED: dict[int, ErrorCode] = {
    api.key: ErrorCode.NOT_LEADER_OR_FOLLOWER if api.name in _DATA else ErrorCode.COORDINATOR_NOT_AVAILABLE
    for api in APIS.values()
    if api.name in _DATA | _COORDINATION
}
"""What a fenced broker answers: clients then look elsewhere. Metadata and ApiVersions it still answers."""

QUORUM_READS = frozenset(api.key for api in APIS.values() if api.name in _METADATA_READS)
"""With `read_quorum` these are answered only after a majority has confirmed that the local state is fresh."""
