"""ListPartitionReassignments (API key 46): lists ongoing reassignments of all or of the requested partitions."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from chronik.api.shared.context import RequestContext, Services
from chronik.metadata.image import Image
from chronik.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from chronik.request_reply import Reply


def handle(
    services: Services, request: ListPartitionReassignmentsRequest, context: RequestContext
) -> Reply[ListPartitionReassignmentsResponse]:
    if request.topics is None:
        partitions_by_topic = {name: range(len(topic.partitions)) for name, topic in services.image.topics.items()}
        return Reply.from_steps(_list_reassignments(services.image, partitions_by_topic))
    named: dict[str, list[int]] = {}
    for topic in request.topics:
        named.setdefault(topic.name, []).extend(topic.partition_indexes)
    return Reply.from_steps(_list_reassignments(services.image, named))


def _list_reassignments(
    image: Image, partitions_by_topic: dict[str, list[int]] | dict[str, range]
) -> Generator[None, None, ListPartitionReassignmentsResponse]:
    topics = []
    for name, indexes in partitions_by_topic.items():
        partitions = list(_list_ongoing_reassignments(image, name, indexes))
        if partitions:
            topics.append(OngoingTopicReassignment(name=name, partitions=partitions))
        yield
    return ListPartitionReassignmentsResponse(topics=topics)


def _list_ongoing_reassignments(
    image: Image, name: str, indexes: list[int] | range
) -> Iterator[OngoingPartitionReassignment]:
    topic = image.topics.get(name)
    for index in dict.fromkeys(indexes):
        if topic is not None and topic.has_partition(index):
            partition = topic.partitions[index]
            if partition.is_reassigning:
                yield OngoingPartitionReassignment(
                    partition_index=index,
                    replicas=list(partition.replicas),
                    adding_replicas=list(partition.adding),
                    removing_replicas=list(partition.removing),
                )
