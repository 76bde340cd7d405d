"""DescribeLogDirs (API key 35): returns the size of each partition in the data directory, and the free disk space."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from chronik.admin.partitions import read_partition_size
from chronik.api.shared.context import RequestContext, Services
from chronik.files.platform import get_disk_space
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from chronik.request_reply import Reply


def handle(
    services: Services, request: DescribeLogDirsRequest, context: RequestContext
) -> Reply[DescribeLogDirsResponse]:
    return Reply.from_steps(_describe_log_dirs(services, request))


def _describe_log_dirs(
    services: Services, request: DescribeLogDirsRequest
) -> Generator[None, None, DescribeLogDirsResponse]:
    directory = services.config.data_dir.absolute()
    disk = get_disk_space(str(directory))
    topics: dict[str, dict[int, DescribeLogDirsPartition]] = {}
    for name, index in _list_requested_partitions(services, request):
        if index not in topics.get(name, ()):
            size = read_partition_size(services.store, services.replicas, name, index)
            if size is not None:
                topics.setdefault(name, {})[index] = DescribeLogDirsPartition(
                    partition_index=index, partition_size=size.size_bytes, offset_lag=size.offset_lag
                )
        yield
    result = DescribeLogDirsResult(log_dir=str(directory), total_bytes=disk.total_bytes, usable_bytes=disk.free_bytes)
    for name, partitions in topics.items():
        result.topics.append(DescribeLogDirsTopic(name=name, partitions=list(partitions.values())))
    return DescribeLogDirsResponse(results=[result])


def _list_requested_partitions(services: Services, request: DescribeLogDirsRequest) -> Iterator[tuple[str, int]]:
    if request.topics is None:  # all hosted partitions
        return ((replica.topic_name, replica.index) for replica in services.replicas)
    return ((topic.topic, index) for topic in request.topics for index in topic.partitions)


def failure(request: DescribeLogDirsRequest, code: ErrorCode) -> DescribeLogDirsResponse:
    """Build the error response to a DescribeLogDirs request that failed as a whole.

    Early versions only have an error per directory. A client that may not describe the cluster gets no directory, as in
    Kafka: Java's admin client relies on it.
    """
    if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return DescribeLogDirsResponse(error_code=code)
    return DescribeLogDirsResponse(error_code=code, results=[DescribeLogDirsResult(error_code=code)])
