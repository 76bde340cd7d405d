"""Large requests without records are answered up to a size limit, and close their connection beyond it."""

from __future__ import annotations

import pytest

from chronik.limits import NON_PRODUCE_REQUEST_BYTES_MAX, PRODUCE_NAMES_BYTES_MAX
from chronik.protocol.codec import RequestHeader, encode_request
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.describe_groups import DescribeGroupsRequest
from chronik.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.raw import RawClient

NAME_CHARACTERS = 32_000


@pytest.mark.parametrize("extra", [0, 1])
def test_request_size_without_records_is_limited(client: RawClient, extra: int) -> None:
    names = [
        f"{number}-".ljust(NAME_CHARACTERS, "x")
        for number in range(NON_PRODUCE_REQUEST_BYTES_MAX // NAME_CHARACTERS - 1)
    ]
    header = RequestHeader(15, 4, 1, "raw")
    size = len(encode_request(header, DescribeGroupsRequest(groups=[*names, "", ""]))) - 4
    rest = NON_PRODUCE_REQUEST_BYTES_MAX - size + extra
    request = DescribeGroupsRequest(groups=[*names, "y" * (rest // 2), "z" * (rest - rest // 2)])
    assert len(encode_request(header, request)) - 4 == NON_PRODUCE_REQUEST_BYTES_MAX + extra
    client.send(request, 4)
    assert (client.read_frame() is None) is bool(extra)


@pytest.mark.parametrize("extra", [0, 1])
def test_produce_topic_names_size_is_limited(client: RawClient, extra: int) -> None:
    full, rest = divmod(PRODUCE_NAMES_BYTES_MAX + extra, NAME_CHARACTERS)
    names = ["x" * NAME_CHARACTERS] * full + ["y" * rest]
    partition = PartitionProduceData(index=0, records=b"")
    topics = [TopicProduceData(name=name, partition_data=[partition]) for name in names]
    request = ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=topics)
    if extra:
        client.send(request, 9)
        assert client.wait_for_close()
        return
    response = client.request(request, 9, ProduceResponse)
    codes = {topic.partition_responses[0].error_code for topic in response.responses}
    assert codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
