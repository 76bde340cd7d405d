"""OffsetDelete (API key 47): deletes a group's committed offsets of topics that no member is subscribed to."""

from __future__ import annotations

from chronik.api.shared.authorization import build_authorization_predicate
from chronik.api.shared.context import RequestContext, Services
from chronik.protocol.error_responses import build_error_response
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from chronik.protocol.permissions import AclOperation, AclResourceType


async def handle(services: Services, request: OffsetDeleteRequest, context: RequestContext) -> OffsetDeleteResponse:
    """Delete a group's committed offsets for the requested partitions.

    As in Kafka, the group is not looked up if none of the topics exists.
    """
    if not build_authorization_predicate(services, context, AclOperation.DELETE, AclResourceType.GROUP)(
        request.group_id
    ):
        return build_error_response(OffsetDeleteResponse, request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    may_read = build_authorization_predicate(services, context, AclOperation.READ, AclResourceType.TOPIC)
    unauthorized = {topic.name for topic in request.topics if not may_read(topic.name)}
    keys = [(topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions]
    errors = dict.fromkeys(keys, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    errors.update((key, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for key in keys if key[0] in unauthorized)
    known = [key for key in errors if key[0] in services.image.topics and key[0] not in unauthorized]
    if known or not keys:
        result = await services.groups.delete_offsets(request.group_id, known)
        if isinstance(result, ErrorCode):
            return build_error_response(OffsetDeleteResponse, request, result)
        errors.update(result)
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=errors[topic.name, partition.partition_index],
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
