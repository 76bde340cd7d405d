"""AlterReplicaLogDirs: a node has one data folder, so a replica is there or cannot go there."""

from __future__ import annotations

from collections.abc import Generator

from chronik.admin.log_dirs import refusal_of_move
from chronik.api.shared.context import Context, Services
from chronik.exchange import Reply
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

Results = dict[str, dict[int, AlterReplicaLogDirPartitionResult]]
"""By topic and partition: of one that is named twice the last counts."""


def handle(
    services: Services, request: AlterReplicaLogDirsRequest, context: Context
) -> Reply[AlterReplicaLogDirsResponse]:
    return Reply.of_steps(_answer(services, request))


def _answer(
    services: Services, request: AlterReplicaLogDirsRequest
) -> Generator[None, None, AlterReplicaLogDirsResponse]:
    own_folder = str(services.config.data_dir.absolute())  # as DescribeLogDirs names it
    results: Results = {}
    for folder in request.dirs:
        code = ErrorCode.LOG_DIR_NOT_FOUND
        for topic in folder.topics:
            of_topic = results.setdefault(topic.name, {})
            yield
            for index in topic.partitions:
                if folder.path == own_folder:
                    code = refusal_of_move(services.store, services.replicas, topic.name, index)
                of_topic[index] = AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                yield
    return _response(results)


def failure(request: AlterReplicaLogDirsRequest, code: ErrorCode) -> AlterReplicaLogDirsResponse:
    """The answer names topics, where the request names folders with topics in them."""
    results: Results = {}
    for folder in request.dirs:
        for topic in folder.topics:
            of_topic = results.setdefault(topic.name, {})
            for index in dict.fromkeys(topic.partitions):
                of_topic[index] = AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
    return _response(results)


def _response(results: Results) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(topic_name=name, partitions=list(of_topic.values()))
            for name, of_topic in results.items()
        ]
    )
