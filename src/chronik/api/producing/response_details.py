"""Details of Produce responses: current leaders, rejected records, and errors of requests without acks."""

from __future__ import annotations

from chronik.api.shared.context import RequestContext, Services
from chronik.api.shared.leaders import broker_endpoints, find_partition
from chronik.limits import PRODUCE_NAMES_BYTES_MAX
from chronik.protocol.errors import ErrorCode, InvalidRecord, KafkaError
from chronik.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    ProduceLeaderIdAndEpoch,
    ProduceNodeEndpoint,
    ProduceRequest,
    ProduceResponse,
)
from chronik.request_reply import Disconnect

FIRST_VERSION_WITH_TOPIC_IDS = 13
MANY_TOPICS = 100
"""Number of topics below which their names cannot add up to many bytes."""


def check_topic_names_size(request: ProduceRequest) -> None:
    """Raise Disconnect if the topic names are too long in total: the response would be as large as the request."""
    if sum(len(topic.name) for topic in request.topic_data) > PRODUCE_NAMES_BYTES_MAX:
        raise Disconnect(f"produce request with topic names of more than {PRODUCE_NAMES_BYTES_MAX} characters")


def add_current_leaders(services: Services, response: ProduceResponse, context: RequestContext) -> None:
    """Add the current leaders and their endpoints for partitions with NOT_LEADER_OR_FOLLOWER."""
    if services.is_fenced():
        return  # the image of a fenced broker may be stale and name the broker itself as leader
    leaders = set()
    for topic in response.responses:
        key = topic.topic_id if context.version >= FIRST_VERSION_WITH_TOPIC_IDS else topic.name
        for answer in topic.partition_responses:
            if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                partition = find_partition(services, key, answer.index)
                if partition is not None:
                    answer.current_leader = ProduceLeaderIdAndEpoch(
                        leader_id=partition.leader, leader_epoch=partition.leader_epoch
                    )
                    leaders.add(partition.leader)
    if leaders:
        response.node_endpoints = [
            ProduceNodeEndpoint(node_id=broker.id, host=place.host, port=place.port, rack=broker.rack)
            for broker, place in broker_endpoints(services.image.brokers, leaders, context.listener)
        ]


def rejected_records(error: KafkaError) -> list[BatchIndexAndErrorMessage]:
    """Return the indexes of the rejected records, so that the client can send the others again.

    The reason is the same for all of them and is part of the partition's response.
    """
    indexes = error.record_indexes if isinstance(error, InvalidRecord) else ()
    return [BatchIndexAndErrorMessage(batch_index=index) for index in indexes]


def disconnect_on_error(response: ProduceResponse) -> None:
    """Raise Disconnect if a partition of a request without acks failed: the client gets no response."""
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code != ErrorCode.NONE:
                raise Disconnect(
                    f"produce request with acks=0 failed: {ErrorCode(partition.error_code).name} "
                    f"for partition {topic.name}-{partition.index}"
                )
