"""Errors of rejected requests are freed without the garbage collector.

An exception references the frames that it was raised through; a reference cycle of both may outlive many collections.
"""

from __future__ import annotations

import asyncio
import gc
import re
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any, Final

import pytest

from chronik.api import (
    alter_configs,
    alter_partition_reassignments,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_quorum,
    elect_leaders,
    incremental_alter_configs,
)
from chronik.broker.requests.decompression import BatchDecompressor
from chronik.protocol.budget import DecompressionBudget
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages import alter_configs as replaced
from chronik.protocol.messages import alter_partition_reassignments as reassigned
from chronik.protocol.messages import create_partitions as enlarged
from chronik.protocol.messages import create_topics as created
from chronik.protocol.messages import delete_records as cut
from chronik.protocol.messages import delete_topics as deleted
from chronik.protocol.messages import describe_quorum as quorum
from chronik.protocol.messages import elect_leaders as elected
from chronik.protocol.messages import incremental_alter_configs as changed
from tests.api.rejecting_services import KNOWN, UNKNOWN, rejecting_services

TIMES: Final = 3


def requests(name: str) -> dict[ModuleType, Any]:
    partition = reassigned.ReassignablePartition(partition_index=0, replicas=[1])
    record = cut.DeleteRecordsPartition(partition_index=0, offset=0)
    own = quorum.DescribeQuorumPartition(partition_index=0)
    return {
        create_topics: created.CreateTopicsRequest(
            topics=[created.CreatableTopic(name=each) for each in ("/", "new", name)]
        ),
        create_partitions: enlarged.CreatePartitionsRequest(
            topics=[enlarged.CreatePartitionsTopic(name=name, count=2, assignments=None)]
        ),
        delete_topics: deleted.DeleteTopicsRequest(topics=[deleted.DeleteTopicState(name=name)]),
        delete_records: cut.DeleteRecordsRequest(topics=[cut.DeleteRecordsTopic(name=name, partitions=[record])]),
        alter_configs: replaced.AlterConfigsRequest(
            resources=[replaced.AlterConfigsResource(resource_type=2, resource_name=name)]
        ),
        incremental_alter_configs: changed.IncrementalAlterConfigsRequest(
            resources=[changed.IncrementalAlterConfigsResource(resource_type=2, resource_name=name)]
        ),
        alter_partition_reassignments: reassigned.AlterPartitionReassignmentsRequest(
            topics=[reassigned.ReassignableTopic(name=name, partitions=[partition])]
        ),
        elect_leaders: elected.ElectLeadersRequest(
            topic_partitions=[elected.TopicPartitions(topic=name, partitions=[0])]
        ),
        describe_quorum: quorum.DescribeQuorumRequest(
            topics=[quorum.DescribeQuorumTopic(topic_name="__cluster_metadata", partitions=[own])]
        ),
    }


@pytest.fixture(autouse=True)
def disable_garbage_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def count_errors() -> int:
    return sum(isinstance(each, KafkaError) for each in gc.get_objects())


@pytest.mark.parametrize("has_quorum", [True, False])
@pytest.mark.parametrize("name", [KNOWN, UNKNOWN])
@pytest.mark.parametrize("handler", requests(KNOWN), ids=lambda handler: handler.__name__.split(".")[-1])
def test_errors_of_rejected_requests_are_freed(handler: Any, name: str, has_quorum: bool) -> None:
    async def is_rejected() -> bool:
        node_services = rejecting_services(has_quorum)
        try:
            answer = await handler.handle(
                node_services, requests(name)[handler], SimpleNamespace(version=2, listener="", usage=None)
            )
            return re.search(r"error_code=<ErrorCode\.(?!NONE)", repr(answer)) is not None
        except KafkaError:
            return True  # the whole request was rejected

    before = count_errors()
    for _ in range(TIMES):
        assert asyncio.run(is_rejected())
    assert count_errors() == before


def test_errors_raised_in_a_thread_are_freed() -> None:
    def raise_error(budget: DecompressionBudget) -> None:
        raise KafkaError(ErrorCode.INVALID_RECORD)

    async def is_rejected() -> None:
        with pytest.raises(KafkaError):
            await BatchDecompressor().run_in_thread(raise_error, DecompressionBudget.for_event_loop())

    before = count_errors()
    for _ in range(TIMES):
        asyncio.run(is_rejected())
    assert count_errors() == before
