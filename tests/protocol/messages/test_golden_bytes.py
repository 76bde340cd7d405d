"""Messages compared with bytes that were written by hand from Kafka's schemas."""

from __future__ import annotations

from pathlib import Path

import pytest

from chronik.protocol import codec
from chronik.protocol.messages.alter_nodes import AlteredNode, AlterNodesRequest, AlterNodesResponse, NodeToAlter
from chronik.protocol.messages.api_versions import ApiVersionsRequest
from chronik.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from chronik.protocol.messages.describe_nodes import DescribedNode, DescribeNodesRequest, DescribeNodesResponse
from chronik.protocol.messages.fetch import FetchableTopicResponse, FetchEpochEndOffset, FetchResponse, PartitionData
from chronik.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from chronik.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from chronik.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from chronik.protocol.schema import Struct

GOLDEN = Path(__file__).parent / "golden"


def produced(index: int, **topic: object) -> list[TopicProduceData]:
    return [TopicProduceData(partition_data=[PartitionProduceData(index=index, records=b"\1\2\3")], **topic)]  # type: ignore[arg-type]


MESSAGES: dict[str, Struct] = {
    "ApiVersionsRequest-v3": ApiVersionsRequest(client_software_name="librdkafka", client_software_version="2.16.0"),
    "ProduceRequest-v3": ProduceRequest(acks=-1, timeout_ms=30000, topic_data=produced(2, name="t")),
    "ProduceRequest-v13": ProduceRequest(acks=1, timeout_ms=100, topic_data=produced(0, topic_id=bytes(range(16)))),
    "FetchResponse-v12": FetchResponse(
        session_id=42,
        responses=[
            FetchableTopicResponse(
                topic="t",
                partitions=[
                    PartitionData(
                        partition_index=1,
                        high_watermark=100,
                        last_stable_offset=100,
                        log_start_offset=0,
                        diverging_epoch=FetchEpochEndOffset(epoch=3, end_offset=60),
                        aborted_transactions=None,
                        records=b"",
                    )
                ],
            )
        ],
    ),
    "OffsetCommitRequest-v1": OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=5,
        member_id="m",
        topics=[
            OffsetCommitRequestTopic(
                name="t", partitions=[OffsetCommitRequestPartition(committed_offset=7, committed_metadata=None)]
            )
        ],
    ),
    "ListOffsetsResponse-v0": ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(name="t", partitions=[ListOffsetsPartitionResponse(old_style_offsets=[10, 0])])
        ]
    ),
    "DescribeNodesRequest-v0": DescribeNodesRequest(),
    "DescribeNodesResponse-v0": DescribeNodesResponse(
        cluster_id="c",
        level=3,
        nodes=[
            DescribedNode(
                node_id=4,
                host="h",
                port=5001,
                meant_to_vote=True,
                is_member=True,
                directory_id=bytes(range(16)),
                rack="r",
                status="online",
                broker_epoch=7,
            )
        ],
    ),
    "AlterNodesRequest-v0": AlterNodesRequest(
        timeout_ms=1000,
        changes=[NodeToAlter(node_id=4, action=0, host="h", port=5001), NodeToAlter(node_id=2, action=5)],
        validate_only=True,
    ),
    "AlterNodesResponse-v0": AlterNodesResponse(
        results=[AlteredNode(node_id=4), AlteredNode(node_id=2, error_code=44, error_message="no")]
    ),
    "DescribeLogDirsRequest-v0": DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic="t", partitions=[0, 1])]),
}


def golden_bytes(name: str) -> bytes:
    lines = (GOLDEN / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return b"".join(bytes.fromhex(line.partition("#")[0]) for line in lines)


@pytest.mark.parametrize("name", MESSAGES)
def test_message_matches_golden_bytes(name: str) -> None:
    version = int(name.rpartition("-v")[2])
    message = MESSAGES[name]
    assert codec.encode(message, version).hex(" ") == golden_bytes(name).hex(" ")
    assert codec.decode(type(message), version, golden_bytes(name)) == message


def test_every_golden_file_has_a_test() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(MESSAGES)
