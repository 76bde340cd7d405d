"""AlterReplicaLogDirs: a node has one data folder, so a replica is there or cannot go there."""

from __future__ import annotations

from chronik.admin.log_dirs import refusal_of_move
from chronik.admin.partitions import NamedPartition
from chronik.api.shared.context import Context, Services
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


def handle(services: Services, request: AlterReplicaLogDirsRequest, context: Context) -> AlterReplicaLogDirsResponse:
    own_folder = str(services.config.data_dir.absolute())  # as DescribeLogDirs names it
    outcomes: dict[str, dict[int, ErrorCode]] = {}
    for folder in request.dirs:
        for topic in folder.topics:
            outcome = outcomes.setdefault(topic.name, {})
            for index in topic.partitions:
                if folder.path == own_folder:
                    named = NamedPartition(topic.name, index)
                    outcome[index] = refusal_of_move(services.store, services.replicas, named)
                else:
                    outcome[index] = ErrorCode.LOG_DIR_NOT_FOUND
    return _response(outcomes)


def failure(request: AlterReplicaLogDirsRequest, code: ErrorCode) -> AlterReplicaLogDirsResponse:
    """The answer names topics, where the request names folders with topics in them."""
    outcomes: dict[str, dict[int, ErrorCode]] = {}
    for folder in request.dirs:
        for topic in folder.topics:
            outcomes.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions, code))
    return _response(outcomes)


def _response(outcomes: dict[str, dict[int, ErrorCode]]) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                    for index, code in outcome.items()
                ],
            )
            for name, outcome in outcomes.items()
        ]
    )
