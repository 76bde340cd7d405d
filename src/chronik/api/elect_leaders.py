"""ElectLeaders (API key 43): elects preferred leaders or, from version 1 on, unclean leaders of offline partitions."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from chronik.admin.partitions import PartitionOutcome, TopicPartitionName, elect_leaders, find_partitions_to_elect
from chronik.api.shared.context import RequestContext, Services
from chronik.protocol.error_responses import build_error_fields, build_error_response
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)


class ElectionType(IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


async def handle(services: Services, request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    if request.election_type not in list(ElectionType):
        return build_error_response(ElectLeadersResponse, request, ErrorCode.INVALID_REQUEST)
    unclean = request.election_type == ElectionType.UNCLEAN
    wanted = _list_requested_partitions(request)
    if wanted is not None:
        return _build_response(zip(wanted, await elect_leaders(services.store, wanted, unclean=unclean), strict=True))
    # All partitions: only those that need an election are named. The image may be stale, so others may have a leader.
    wanted = list(find_partitions_to_elect(services.image, unclean=unclean))
    elected = zip(wanted, await elect_leaders(services.store, wanted, unclean=unclean), strict=True)
    return _build_response(
        each for each in elected if each[1] is None or each[1].code is not ErrorCode.ELECTION_NOT_NEEDED
    )


def _list_requested_partitions(request: ElectLeadersRequest) -> list[TopicPartitionName] | None:
    if request.topic_partitions is None:
        return None
    named = [TopicPartitionName(topic.topic, index) for topic in request.topic_partitions for index in topic.partitions]
    return list(dict.fromkeys(named))


def _build_response(elected: Iterable[tuple[TopicPartitionName, PartitionOutcome]]) -> ElectLeadersResponse:
    topics: dict[str, ReplicaElectionResult] = {}
    for named, error in elected:
        result = PartitionResult(partition_id=named.partition, **build_error_fields(error))
        topics.setdefault(named.topic, ReplicaElectionResult(topic=named.topic)).partition_result.append(result)
    return ElectLeadersResponse(replica_election_results=list(topics.values()))
