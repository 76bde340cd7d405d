"""AlterPartitionReassignments, versions 0 and 1: partitions move to other replicas, or do not move any more."""

from __future__ import annotations

from chronik.admin.partitions import NamedPartition, WantedReplicas, reassign
from chronik.api.shared.context import Context, Services
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


async def handle(
    services: Services, request: AlterPartitionReassignmentsRequest, context: Context
) -> AlterPartitionReassignmentsResponse:
    wanted = [
        WantedReplicas(
            NamedPartition(topic.name, partition.partition_index),
            None if partition.replicas is None else tuple(partition.replicas),
        )
        for topic in request.topics
        for partition in topic.partitions
    ]
    allowed = request.allow_replication_factor_change
    outcomes = iter(await reassign(services.store, wanted, allow_replication_factor_change=allowed))
    response = failure(request, ErrorCode.NONE)
    response.allow_replication_factor_change = allowed
    for topic in response.responses:
        for partition in topic.partitions:
            error = next(outcomes)
            if error is not None:
                partition.error_code, partition.error_message = error.code, error.message
    return response


def failure(request: AlterPartitionReassignmentsRequest, code: ErrorCode) -> AlterPartitionReassignmentsResponse:
    message = None if code is ErrorCode.NONE else code.message
    return AlterPartitionReassignmentsResponse(
        error_code=code,
        error_message=message,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    ReassignablePartitionResponse(
                        partition_index=partition.partition_index, error_code=code, error_message=message
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
