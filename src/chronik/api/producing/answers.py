"""What is told in the answer to a Produce beside offsets: who leads, which records are to blame, or nothing at all."""

from __future__ import annotations

from chronik.api.shared.context import Context, Services
from chronik.api.shared.leaders import partition_of, places
from chronik.exchange import Disconnect
from chronik.limits import PRODUCE_NAMES_BYTES_MAX
from chronik.protocol.errors import ErrorCode, InvalidRecord, KafkaError
from chronik.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    ProduceRequest,
    ProduceResponse,
)

FIRST_VERSION_WITH_TOPIC_IDS = 13
MANY_TOPICS = 100
"""With fewer topics, their names cannot add up to many bytes."""


def check_names(request: ProduceRequest) -> None:
    """Raises Disconnect for names that are no topics' names: the answer would be as large as the request."""
    if sum(len(topic.name) for topic in request.topic_data) > PRODUCE_NAMES_BYTES_MAX:
        raise Disconnect(f"a produce with topic names of more than {PRODUCE_NAMES_BYTES_MAX} characters")


def name_leaders(services: Services, response: ProduceResponse, context: Context) -> None:
    if services.is_fenced():
        return  # it believes what it last heard: perhaps that it leads itself
    leaders = set()
    for topic in response.responses:
        key = topic.topic_id if context.version >= FIRST_VERSION_WITH_TOPIC_IDS else topic.name
        for answer in topic.partition_responses:
            if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                partition = partition_of(services, key, answer.index)
                if partition is not None:
                    answer.current_leader = LeaderIdAndEpoch(
                        leader_id=partition.leader, leader_epoch=partition.leader_epoch
                    )
                    leaders.add(partition.leader)
    if leaders:
        response.node_endpoints = [
            NodeEndpoint(node_id=broker.id, host=place.host, port=place.port, rack=broker.rack)
            for broker, place in places(services.image.brokers, leaders, context.listener)
        ]


def record_errors(error: KafkaError) -> list[BatchIndexAndErrorMessage]:
    """Names the records that are to blame, so that a client can send the others again. Why is told once for all."""
    indexes = error.indexes if isinstance(error, InvalidRecord) else ()
    return [BatchIndexAndErrorMessage(batch_index=index) for index in indexes]


def close_on_error(response: ProduceResponse) -> None:
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code != ErrorCode.NONE:
                raise Disconnect(
                    f"a produce without acks failed: {ErrorCode(partition.error_code).name} "
                    f"for partition {partition.index} of {topic.name}"
                )
