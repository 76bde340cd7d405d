"""DescribeLogDirs, versions 0 to 5: how much of the data folder each partition takes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from chronik.api.context import Context, Services
from chronik.broker.replica import Replica
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

NO_LAG = 0  # a leader is never behind itself


def handle(services: Services, request: DescribeLogDirsRequest, context: Context) -> DescribeLogDirsResponse:
    folder = services.config.data_dir.absolute()
    disk = shutil.disk_usage(folder)
    topics: dict[str, DescribeLogDirsTopic] = {}
    for replica in _wanted(services, request):
        replica.open()
        topic = topics.setdefault(replica.topic_name, DescribeLogDirsTopic(name=replica.topic_name))
        topic.partitions.append(
            DescribeLogDirsPartition(
                partition_index=replica.index, partition_size=replica.log.size, offset_lag=NO_LAG
            )
        )
    result = DescribeLogDirsResult(
        log_dir=str(folder), topics=list(topics.values()), total_bytes=disk.total, usable_bytes=disk.free
    )
    return DescribeLogDirsResponse(results=[result])


def failure(request: DescribeLogDirsRequest, code: ErrorCode) -> DescribeLogDirsResponse:
    return DescribeLogDirsResponse(error_code=code, results=[DescribeLogDirsResult(error_code=code)])


def _wanted(services: Services, request: DescribeLogDirsRequest) -> Iterator[Replica]:
    """Those asked for that are here; a client that asks for all (null) gets all."""
    if request.topics is None:
        yield from services.replicas
        return
    for topic in request.topics:
        for index in topic.partitions:
            replica = services.replicas.get(topic.topic, index)
            if replica is not None:
                yield replica
