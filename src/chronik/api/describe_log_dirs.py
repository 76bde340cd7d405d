"""DescribeLogDirs: how much of the data folder each partition takes."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Generator

from chronik.admin.log_dirs import partition_sizes
from chronik.admin.partitions import NamedPartition
from chronik.api.shared.context import Context, Services
from chronik.api.shared.long_answers import Long, at_once_or_in_slices
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


def _answer(services: Services, request: DescribeLogDirsRequest) -> Generator[None, None, DescribeLogDirsResponse]:
    folder = services.config.data_dir.absolute()
    disk = shutil.disk_usage(folder)
    wanted = None
    if request.topics is not None:
        wanted = [NamedPartition(topic.topic, index) for topic in request.topics for index in topic.partitions]
    topics: dict[str, DescribeLogDirsTopic] = {}
    for name, index, size_bytes, offset_lag in partition_sizes(services.store, services.replicas, wanted):
        partition = DescribeLogDirsPartition(partition_index=index, partition_size=size_bytes, offset_lag=offset_lag)
        topics.setdefault(name, DescribeLogDirsTopic(name=name)).partitions.append(partition)
        yield
    result = DescribeLogDirsResult(
        log_dir=str(folder), topics=list(topics.values()), total_bytes=disk.total, usable_bytes=disk.free
    )
    return DescribeLogDirsResponse(results=[result])


def failure(request: DescribeLogDirsRequest, code: ErrorCode) -> DescribeLogDirsResponse:
    """In early versions only folders have an error, and requests name topics, not folders."""
    return DescribeLogDirsResponse(error_code=code, results=[DescribeLogDirsResult(error_code=code)])
