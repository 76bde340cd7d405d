"""DeleteRecords: the timeout only applies to other replicas."""

from __future__ import annotations

from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tests.api import request_builders
from tests.raw import RawClient


def test_delete_records_without_followers_ignores_zero_timeout(client: RawClient, chronik_topic: str) -> None:
    request_builders.produce(client, chronik_topic, request_builders.batch(b"0", b"1", b"2"))
    partition = DeleteRecordsPartition(partition_index=0, offset=2)
    topic = DeleteRecordsTopic(name=chronik_topic, partitions=[partition])
    request = DeleteRecordsRequest(topics=[topic], timeout_ms=0)
    answer = client.request(request, 2, DeleteRecordsResponse).topics[0].partitions[0]
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.NONE, 2)
