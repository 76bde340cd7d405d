"""AlterPartitionReassignments (API key 45): starts or cancels reassignments of partitions to other replicas."""

from __future__ import annotations

from chronik.admin.partitions import ReassignmentRequest, TopicPartitionName, reassign_partitions
from chronik.api.shared.context import RequestContext, Services
from chronik.protocol.error_responses import build_error_fields
from chronik.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


async def handle(
    services: Services, request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    wanted = [
        ReassignmentRequest(
            TopicPartitionName(topic.name, partition.partition_index),
            None if partition.replicas is None else tuple(partition.replicas),
        )
        for topic in request.topics
        for partition in topic.partitions
    ]
    allowed = request.allow_replication_factor_change
    outcomes = iter(await reassign_partitions(services.store, wanted, allow_replication_factor_change=allowed))
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=allowed,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    ReassignablePartitionResponse(
                        partition_index=partition.partition_index, **build_error_fields(next(outcomes))
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
