"""Names of 32 kB are rejected and increase neither the node's memory nor its metadata log.

Error messages about names of the maximum length are shortened, so that they can be encoded.
"""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import pytest

from chronik.client.cluster import ClusterClient
from chronik.metadata.commands.groups import UpdateConsumerGroup
from chronik.metadata.commands.transactions import NO_RECORD_INDEX, InitTransaction
from chronik.protocol.errors import MESSAGE_CHARACTERS_MAX, ErrorCode, KafkaError
from chronik.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.api.authorizing_node import AuthorizingNode, error_codes_in, send_request
from tests.raw import RawClient

REQUESTS = 1_000
NAME_BYTES = 32_000
GROWTH_BYTES_MAX = REQUESTS * NAME_BYTES // 2

LONGEST = "x" * 32_767


def resident_bytes() -> int:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def stored_bytes(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")
@pytest.mark.parametrize(
    ("api", "version", "field", "code"),
    [
        ("InitProducerId", 4, "transactional_id", ErrorCode.INVALID_REQUEST),
        ("JoinGroup", 5, "group_id", ErrorCode.INVALID_GROUP_ID),
        ("OffsetCommit", 8, "group_id", ErrorCode.INVALID_GROUP_ID),
    ],
)
def test_long_names_are_rejected_without_using_memory_or_disk(
    tmp_path: Path, api: str, version: int, field: str, code: ErrorCode
) -> None:
    others: dict[str, dict[str, Any]] = {
        "InitProducerId": {"transaction_timeout_ms": 60_000},
        "JoinGroup": {
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        },
        "OffsetCommit": {
            "topics": [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 0}]}],
        },
    }
    node = AuthorizingNode(tmp_path, **{"super.users": "User:ANONYMOUS"})
    try:
        with RawClient(node.bootstrap) as client:
            topic = {"name": "t", "num_partitions": 1, "replication_factor": 1}
            send_request(client, "CreateTopics", 7, topics=[topic], timeout_ms=10_000)
            memory, disk, codes = resident_bytes(), stored_bytes(tmp_path), set()
            for number in range(REQUESTS):
                name = str(number).ljust(NAME_BYTES, "x")
                codes.update(error_codes_in(send_request(client, api, version, **{field: name}, **others[api])))
            assert codes == {code}
            assert resident_bytes() - memory < GROWTH_BYTES_MAX
            assert stored_bytes(tmp_path) - disk < GROWTH_BYTES_MAX // 10
        assert not node.services.image.transactions
        assert not node.services.image.groups
    finally:
        node.close()


def test_long_names_stored_by_earlier_versions_remain_usable(tmp_path: Path) -> None:
    name = "x" * NAME_BYTES
    node = AuthorizingNode(tmp_path, **{"super.users": "User:ANONYMOUS"})
    try:
        node.propose(InitTransaction(name, NO_RECORD_INDEX, 77, 0, 60_000, node.services.clock.now_ms()))
        node.propose(UpdateConsumerGroup(name, "consumer", 0, None, None, "Empty", (), node.services.clock.now_ms()))
    finally:
        node.close()
    node = AuthorizingNode(tmp_path, **{"super.users": "User:ANONYMOUS"})
    try:
        assert list(node.services.image.transactions) == [name]
        assert list(node.services.image.groups) == [name]
        with RawClient(node.bootstrap) as client:
            for key_type in (0, 1):
                assert not error_codes_in(send_request(client, "FindCoordinator", 3, key=name, key_type=key_type))
            producer = send_request(client, "InitProducerId", 4, transactional_id=name, transaction_timeout_ms=60_000)
            assert (producer.error_code, producer.producer_id, producer.producer_epoch) == (ErrorCode.NONE, 77, 1)
            (deleted,) = send_request(client, "DeleteGroups", 2, groups_names=[name]).results
            assert deleted.error_code == ErrorCode.NONE
    finally:
        node.close()


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
