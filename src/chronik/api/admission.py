"""Which requests a node may answer now: not every one of them while it is cut off, and some only with a quorum."""

from __future__ import annotations

from chronik.api.context import Services
from chronik.metadata.names import SYSTEM_TOPICS
from chronik.protocol.apis import APIS
from chronik.protocol.errors import ErrorCode, KafkaError

_DATA = {"Fetch", "ListOffsets", "OffsetForLeaderEpoch", "DeleteRecords"}
"""And Produce, which sees to it itself: it has to know what it refused."""
_COORDINATION = {
    "FindCoordinator",
    "JoinGroup",
    "SyncGroup",
    "Heartbeat",
    "LeaveGroup",
    "OffsetCommit",
    "DescribeGroups",
    "ListGroups",
    "DeleteGroups",
    "OffsetDelete",
}
_METADATA_READS = {
    "Metadata",
    "DescribeCluster",
    "DescribeTopicPartitions",
    "DescribeConfigs",
    "ListConfigResources",
    "ListPartitionReassignments",
    "OffsetFetch",
    "DescribeGroups",
    "ListGroups",
}

_WHEN_FENCED = (
    dict.fromkeys(_DATA, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    | dict.fromkeys(_COORDINATION, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    # Any node will do, so there is nothing to look for: producers just ask again, where the other makes some give up.
    | {"InitProducerId": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)

FENCED = {api.key: _WHEN_FENCED[api.name] for api in APIS.values() if api.name in _WHEN_FENCED}
"""What a fenced broker answers: clients then look elsewhere. Metadata and ApiVersions it still answers, and OffsetFetch
if a majority confirms that it knows of every commit."""

QUORUM_READS = frozenset(api.key for api in APIS.values() if api.name in _METADATA_READS)
"""With `read_quorum` these are answered only after a majority has confirmed that the local state is fresh."""

UNCONFIRMED = {api.key: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS for api in APIS.values() if api.name == "OffsetFetch"}
"""What is answered when none has, where that is another error than the store's: of REQUEST_TIMED_OUT some clients tell
the application, and it fails."""


def refuse_system_topic(services: Services, name: str) -> None:
    """Raises KafkaError for a topic that a cluster goes by. The epoch of a group's partition tells the commands of its
    coordinators apart: were groups to fall into other partitions, or epochs to begin anew with a new topic, those of a
    coordinator that was replaced could be taken for its successor's."""
    if name in SYSTEM_TOPICS and not services.coordinators.stands_alone:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is the cluster's own, and stays as it is")
