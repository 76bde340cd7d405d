"""AlterReplicaLogDirs (API key 34): moves replicas between log directories.

A node has a single data directory, so a replica is already there or cannot be moved.
"""

from __future__ import annotations

from collections.abc import Generator

from chronik.admin.partitions import check_replica_move
from chronik.api.shared.context import RequestContext, Services
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from chronik.request_reply import Reply

_Results = dict[str, dict[int, AlterReplicaLogDirPartitionResult]]
"""Result of moving each replica to another log directory, by topic and partition.

If the request contains a partition several times, the last directory wins.
"""


def handle(
    services: Services, request: AlterReplicaLogDirsRequest, context: RequestContext
) -> Reply[AlterReplicaLogDirsResponse]:
    return Reply.from_steps(_check_replica_moves(services, request))


def _check_replica_moves(
    services: Services, request: AlterReplicaLogDirsRequest
) -> Generator[None, None, AlterReplicaLogDirsResponse]:
    own_directory = str(services.config.data_dir.absolute())  # the name that DescribeLogDirs returns
    results: _Results = {}
    for directory in request.dirs:
        code = ErrorCode.LOG_DIR_NOT_FOUND
        for topic in directory.topics:
            topic_results = results.setdefault(topic.name, {})
            yield
            for index in topic.partitions:
                if directory.path == own_directory:
                    code = check_replica_move(services.store, services.replicas, topic.name, index)
                topic_results[index] = AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                yield
    return _build_response(results)


def failure(request: AlterReplicaLogDirsRequest, code: ErrorCode) -> AlterReplicaLogDirsResponse:
    """Build an AlterReplicaLogDirs response with the same error code for every requested partition."""
    results: _Results = {}
    for directory in request.dirs:
        for topic in directory.topics:
            topic_results = results.setdefault(topic.name, {})
            for index in dict.fromkeys(topic.partitions):
                topic_results[index] = AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
    return _build_response(results)


def _build_response(results: _Results) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(topic_name=name, partitions=list(topic_results.values()))
            for name, topic_results in results.items()
        ]
    )
