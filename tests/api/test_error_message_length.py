"""Error messages about names of the maximum length are shortened, so that they can be encoded."""

from __future__ import annotations

from pathlib import Path

import pytest

from chronik.client.cluster import ClusterClient
from chronik.protocol.errors import MESSAGE_CHARACTERS_MAX, ErrorCode, KafkaError
from chronik.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.api.authorizing_node import AuthorizingNode

LONGEST = "x" * 32_767


def test_long_error_message_is_truncated() -> None:
    assert KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "short").message == "short"
    assert KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, LONGEST).message == "x" * MESSAGE_CHARACTERS_MAX + "…"


@pytest.mark.parametrize("name", [LONGEST, "ä" * 16_383])
def test_request_with_longest_topic_name_is_answered(tmp_path: Path, name: str) -> None:
    node = AuthorizingNode(tmp_path, **{"super.users": "User:ANONYMOUS"})
    try:
        with ClusterClient(node.bootstrap) as cluster:
            partition = ReassignablePartition(partition_index=0, replicas=[1])
            request = AlterPartitionReassignmentsRequest(
                topics=[ReassignableTopic(name=name, partitions=[partition])], timeout_ms=10_000
            )
            answer = cluster.any_broker().request(request, AlterPartitionReassignmentsResponse)
        assert answer.responses[0].partitions[0].error_code != ErrorCode.NONE
    finally:
        node.close()
