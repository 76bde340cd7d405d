"""ElectLeaders: elects preferred leaders, and from version 1 on unclean ones for partitions that have none."""

from __future__ import annotations

from enum import IntEnum

from chronik.admin.partitions import NamedPartition, Outcome, elect, in_need_of_election
from chronik.api.shared.context import Context, Services
from chronik.protocol.errors import ErrorCode
from chronik.protocol.failures import failed, told
from chronik.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)


class ElectionType(IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


async def handle(services: Services, request: ElectLeadersRequest, context: Context) -> ElectLeadersResponse:
    if request.election_type not in list(ElectionType):
        return failed(ElectLeadersResponse, request, ErrorCode.INVALID_REQUEST)
    unclean = request.election_type == ElectionType.UNCLEAN
    wanted = _named(request)
    if wanted is None:  # all are asked for: only those that need it are named
        wanted = list(in_need_of_election(services.image, unclean=unclean))
    return _response(wanted, await elect(services.store, wanted, unclean=unclean))


def _named(request: ElectLeadersRequest) -> list[NamedPartition] | None:
    if request.topic_partitions is None:
        return None
    named = [NamedPartition(topic.topic, index) for topic in request.topic_partitions for index in topic.partitions]
    return list(dict.fromkeys(named))


def _response(wanted: list[NamedPartition], outcomes: list[Outcome]) -> ElectLeadersResponse:
    topics: dict[str, ReplicaElectionResult] = {}
    for named, error in zip(wanted, outcomes, strict=True):
        result = PartitionResult(partition_id=named.partition, **told(error))
        topics.setdefault(named.topic, ReplicaElectionResult(topic=named.topic)).partition_result.append(result)
    return ElectLeadersResponse(replica_election_results=list(topics.values()))
