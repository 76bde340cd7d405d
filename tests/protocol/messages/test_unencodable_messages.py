from __future__ import annotations

from typing import Any

import pytest

from chronik.protocol import codec
from chronik.protocol.codec import UnencodableMessage, UnsupportedField, UnsupportedVersion
from chronik.protocol.messages.describe_cluster import DescribeClusterResponse
from chronik.protocol.messages.fetch import FetchableTopicResponse, FetchReplicaState, FetchRequest, FetchResponse
from chronik.protocol.messages.heartbeat import HeartbeatRequest
from chronik.protocol.messages.join_group import JoinGroupRequest
from chronik.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from chronik.protocol.messages.produce import ProduceRequest
from chronik.protocol.schema import Struct

ANY: Any = None  # deliberately of a wrong type


def partition(**values: Any) -> MetadataResponse:
    return MetadataResponse(topics=[MetadataResponseTopic(partitions=[MetadataResponsePartition(**values)])])


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (partition(leader_id=None), "topics[0].partitions[0].leader_id is None, not int32"),
        (partition(leader_id=2**31), "topics[0].partitions[0].leader_id is 2147483648, not int32"),
        (partition(leader_id="1"), "topics[0].partitions[0].leader_id is '1', not int32"),
        (partition(replica_nodes=None), "topics[0].partitions[0].replica_nodes is null"),
        (partition(replica_nodes=[1, None]), "topics[0].partitions[0].replica_nodes[1] is None, not int32"),
        (MetadataResponse(topics=[MetadataResponseTopic(is_internal=ANY)]), "topics[0].is_internal is null"),
        (MetadataResponse(topics=[MetadataResponseTopic(topic_id=b"short")]), "topics[0].topic_id is not 16 bytes"),
        (MetadataResponse(topics=[ANY]), "topics[0] is NoneType, not MetadataResponseTopic"),
        (MetadataResponse(cluster_id="x" * 32768), "cluster_id has 32768 bytes, more than 32767"),
        (MetadataResponse(cluster_id="\ud800"), "cluster_id has lone surrogates"),
    ],
)
@pytest.mark.parametrize("version", [10, 12])
def test_unencodable_value_error_has_field_path(message: Struct, field: str, version: int) -> None:
    with pytest.raises(UnencodableMessage) as caught:
        codec.encode(message, version)
    path, _, fault = field.partition(" is None")
    assert str(caught.value).startswith(f"MetadataResponse.{path}")
    assert fault in str(caught.value) or "is null" in str(caught.value)


def test_null_is_rejected_in_versions_without_null() -> None:
    with pytest.raises(UnencodableMessage, match=r"MetadataRequest\.topics is null in version 0"):
        codec.encode(MetadataRequest(topics=None), 0)
    assert codec.encode(MetadataRequest(topics=None), 1) == b"\xff\xff\xff\xff"
    with pytest.raises(UnencodableMessage, match="cluster_id is null"):
        codec.encode(DescribeClusterResponse(cluster_id=ANY), 0)
    with pytest.raises(UnencodableMessage, match="group_id is null"):
        codec.encode(HeartbeatRequest(group_id=ANY), 0)


def test_string_is_limited_to_32767_bytes() -> None:
    for version in (0, 4):
        assert codec.decode(HeartbeatRequest, version, codec.encode(HeartbeatRequest(group_id="x" * 32767), version))
        with pytest.raises(UnencodableMessage, match="32768 bytes"):
            codec.encode(HeartbeatRequest(group_id="x" * 32768), version)


def test_str_and_bytes_are_not_interchangeable() -> None:
    for version in (0, 6):
        with pytest.raises(UnencodableMessage, match="group_id is bytes, not a string"):
            codec.encode(JoinGroupRequest(group_id=b"g"), version)  # type: ignore[arg-type]


def test_undeclared_version_is_rejected() -> None:
    for version in (-1, 14):
        with pytest.raises(UnsupportedVersion):
            codec.encode(ProduceRequest(), version)
        with pytest.raises(UnsupportedVersion):
            codec.decode(ProduceRequest, version, b"")


class TestUnsupportedFields:
    def test_request_with_unsupported_field_is_rejected(self) -> None:
        with pytest.raises(UnsupportedField, match=r"ProduceRequest.transactional_id does not exist in version 2"):
            codec.encode(ProduceRequest(transactional_id="t"), 2)
        with pytest.raises(UnsupportedField, match=r"FetchRequest.replica_state does not exist in version 14"):
            codec.encode(FetchRequest(replica_state=FetchReplicaState(replica_id=1)), 14)
        with pytest.raises(UnsupportedField, match=r"MetadataRequest.allow_auto_topic_creation"):
            codec.encode(MetadataRequest(allow_auto_topic_creation=False), 3)

    def test_ignorable_field_of_request_is_dropped(self) -> None:
        assert codec.encode(FetchRequest(rack_id="r1"), 10) == codec.encode(FetchRequest(), 10)

    def test_unsupported_fields_of_response_are_dropped(self) -> None:
        topics = [FetchableTopicResponse(topic_id=b"x" * 16)]
        assert codec.encode(FetchResponse(session_id=5, responses=topics), 4) == codec.encode(
            FetchResponse(responses=[FetchableTopicResponse()]), 4
        )
