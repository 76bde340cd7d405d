"""DescribeLogDirs: how much of the data folder each partition takes."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Generator

from chronik.api.shared.context import Context, Services
from chronik.api.shared.long_answers import Long, at_once_or_in_slices
from chronik.broker.replica import Replica
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def handle(
    services: Services, request: DescribeLogDirsRequest, context: Context
) -> DescribeLogDirsResponse | Awaitable[Long]:
    return at_once_or_in_slices(_answer(services, request))


def _answer(
    services: Services, request: DescribeLogDirsRequest
) -> Generator[None, None, DescribeLogDirsResponse]:
    folder = services.config.data_dir.absolute()
    disk = shutil.disk_usage(folder)
    topics: dict[str, DescribeLogDirsTopic] = {}
    for replica in _wanted(services, request):
        if services.replicas.get(replica.topic_name, replica.index) is not replica:
            continue  # deleted since
        replica.open()
        topic = topics.setdefault(replica.topic_name, DescribeLogDirsTopic(name=replica.topic_name))
        topic.partitions.append(
            DescribeLogDirsPartition(
                partition_index=replica.index, partition_size=replica.log.size, offset_lag=_lag(services, replica)
            )
        )
        yield
    result = DescribeLogDirsResult(
        log_dir=str(folder), topics=list(topics.values()), total_bytes=disk.total, usable_bytes=disk.free
    )
    return DescribeLogDirsResponse(results=[result])


def failure(request: DescribeLogDirsRequest, code: ErrorCode) -> DescribeLogDirsResponse:
    """Early versions have an error of a folder only, and requests name topics, not folders."""
    return DescribeLogDirsResponse(error_code=code, results=[DescribeLogDirsResult(error_code=code)])


def _lag(services: Services, replica: Replica) -> int:
    partition = services.image.topics_by_id[replica.topic_id].partitions[replica.index]
    return replica.lag(partition.high_watermark)


def _wanted(services: Services, request: DescribeLogDirsRequest) -> list[Replica]:
    """Those asked for that are here, each once; a client that asks for all (null) gets all."""
    if request.topics is None:
        return list(services.replicas)
    named = dict.fromkeys((topic.topic, index) for topic in request.topics for index in topic.partitions)
    found = (services.replicas.get(name, index) for name, index in named)
    return [replica for replica in found if replica is not None]
