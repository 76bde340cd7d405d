"""DescribeQuorum (API key 55): returns the leader, voters and observers of the metadata log.

Clients cannot read the metadata log as a topic. Every node answers with the leader's state. The last fetch times of
replicas are by this node's clock.
"""

from __future__ import annotations

from typing import Final

from chronik.api.shared.context import RequestContext, Services
from chronik.controller.quorum import TIME_UNKNOWN, Quorum, QuorumMember, describe_quorum
from chronik.metadata.image import Image
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumListener,
    QuorumNode,
    QuorumPartitionData,
    QuorumReplicaState,
    QuorumTopicData,
)

QUORUM_TOPIC: Final = "__cluster_metadata"
QUORUM_PARTITION: Final = 0
"""Name and index of the partition that stands for the metadata log in Kafka's protocol."""

PEER_LISTENER: Final = "CONTROLLER"


async def handle(services: Services, request: DescribeQuorumRequest, context: RequestContext) -> DescribeQuorumResponse:
    response = DescribeQuorumResponse(error_message=None)
    asked = {(topic.topic_name, part.partition_index) for topic in request.topics for part in topic.partitions}
    found: Quorum | KafkaError | None = None
    if (QUORUM_TOPIC, QUORUM_PARTITION) in asked:
        try:
            found = await describe_quorum(services.store, services.node_id)
            response.nodes = _encode_quorum_nodes(services.image, found, context.listener)
        except KafkaError as error:
            found = error.without_traceback()
    now_ms = services.clock.now_ms()
    for topic in request.topics:
        answers = [
            _encode_partition(topic.topic_name, part.partition_index, found, now_ms) for part in topic.partitions
        ]
        response.topics.append(QuorumTopicData(topic_name=topic.topic_name, partitions=answers))
    return response


def _encode_partition(topic: str, index: int, found: Quorum | KafkaError | None, now_ms: int) -> QuorumPartitionData:
    if (topic, index) != (QUORUM_TOPIC, QUORUM_PARTITION) or found is None:
        found = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if isinstance(found, KafkaError):
        return QuorumPartitionData(
            partition_index=index, error_code=found.code, error_message=found.message, leader_id=-1, leader_epoch=-1
        )
    return QuorumPartitionData(
        partition_index=index,
        error_message=None,
        leader_id=found.leader_id,
        leader_epoch=found.leader_epoch,
        high_watermark=found.high_watermark,
        current_voters=[_encode_quorum_replica(member, now_ms) for member in found.members if member.is_voter],
        observers=[_encode_quorum_replica(member, now_ms) for member in found.members if not member.is_voter],
    )


def _encode_quorum_replica(member: QuorumMember, now_ms: int) -> QuorumReplicaState:
    return QuorumReplicaState(
        replica_id=member.node_id,
        replica_directory_id=member.directory_id,
        log_end_offset=member.log_end_offset,
        last_fetch_timestamp=_to_timestamp(member.last_contact_ms_ago, now_ms),
        last_caught_up_timestamp=_to_timestamp(member.caught_up_ms_ago, now_ms),
    )


def _to_timestamp(ms_ago: int, now_ms: int) -> int:
    return TIME_UNKNOWN if ms_ago == TIME_UNKNOWN else now_ms - ms_ago


def _encode_quorum_nodes(image: Image, quorum: Quorum, asked: str) -> list[QuorumNode]:
    """Return the peer addresses of all Raft members, or this node's client address in standalone mode."""
    nodes = []
    for member in quorum.members:
        node, broker = image.nodes.get(member.node_id), image.brokers.get(member.node_id)
        place = broker.listener_address(asked) if broker is not None else None
        if node is not None:
            listener = QuorumListener(name=PEER_LISTENER, host=node.host, port=node.port)
        elif place is not None:
            listener = QuorumListener(name=asked, host=place.host, port=place.port)
        else:
            continue
        nodes.append(QuorumNode(node_id=member.node_id, listeners=[listener]))
    return nodes
