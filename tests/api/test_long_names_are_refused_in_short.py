"""What a client has called by the longest name that fits is refused by a message that fits, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from chronik.client.cluster import Cluster
from chronik.protocol.errors import MESSAGE_CHARACTERS_MAX, ErrorCode, KafkaError
from chronik.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.api.guarded import GuardedNode

LONGEST = "x" * 32_767


def test_an_error_keeps_the_beginning_of_its_message() -> None:
    assert KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "short").message == "short"
    assert KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, LONGEST).message == "x" * MESSAGE_CHARACTERS_MAX + "…"


@pytest.mark.parametrize("name", [LONGEST, "ä" * 16_383])
def test_a_request_about_it_is_answered(tmp_path: Path, name: str) -> None:
    node = GuardedNode(tmp_path, **{"super.users": "User:ANONYMOUS"})
    try:
        with Cluster(node.bootstrap) as cluster:
            partition = ReassignablePartition(partition_index=0, replicas=[1])
            request = AlterPartitionReassignmentsRequest(
                topics=[ReassignableTopic(name=name, partitions=[partition])], timeout_ms=10_000
            )
            answer = cluster.any_broker().request(request, AlterPartitionReassignmentsResponse)
        assert answer.responses[0].partitions[0].error_code != ErrorCode.NONE
    finally:
        node.close()
