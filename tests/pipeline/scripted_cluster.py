"""A cluster with scripted Fetch responses, for broker behaviour that Chronik does not have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from chronik.client.cluster import ClusterClient
from chronik.client.records import TopicPartition
from chronik.pipeline.records.batches import AbortedProducerRange, iter_batches
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchAbortedTransaction,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from chronik.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from chronik.protocol.records import Record, encode_batch

PARTITION = TopicPartition("t", 0)

FetchHandler = Callable[[int, int], PartitionData]
"""A function that returns the response to a fetch at an offset with a byte limit."""


class ScriptedCluster(ClusterClient):
    """A cluster whose only broker responds as the test specifies."""

    def __init__(self, answer: FetchHandler, log_start: int = 0, log_end: int = 10**6) -> None:
        super().__init__("127.0.0.1:1", timeout_s=0)
        self._answer = answer
        self._bounds = {-2: log_start, -1: log_end}
        self.fetched_from: list[int] = []

    def leader_id(self, of: TopicPartition) -> int:
        return 0

    def broker(self, node_id: int) -> Any:
        return self

    def request(self, request: Any, kind: type[Any], *, wait_s: float = 0.0) -> Any:
        if isinstance(request, ListOffsetsRequest):
            offset = self._bounds[request.topics[0].partitions[0].timestamp]
            found = ListOffsetsPartitionResponse(partition_index=0, error_code=0, offset=offset)
            return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[found])])
        assert isinstance(request, FetchRequest)
        wanted = request.topics[0].partitions[0]
        self.fetched_from.append(wanted.fetch_offset)
        data = self._answer(wanted.fetch_offset, wanted.partition_max_bytes)
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])


def serve_batches(
    batches: Sequence[bytes],
    end: int,
    *,
    aborted: Iterable[AbortedProducerRange] = (),
    per_answer: int = 2,
    log_start: int = 0,
) -> FetchHandler:
    """Return a handler for a partition with these batches that ends at `end`, `per_answer` batches per response."""
    listed = [FetchAbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset) for each in aborted]

    def answer(offset: int, _: int) -> PartitionData:
        if not log_start <= offset <= end:
            return PartitionData(error_code=ErrorCode.OFFSET_OUT_OF_RANGE, high_watermark=end)
        chosen = [each for each in batches if list(iter_batches(each))[-1].last_offset >= offset][:per_answer]
        return PartitionData(
            high_watermark=end,
            last_stable_offset=end,
            log_start_offset=log_start,
            aborted_transactions=listed,
            records=memoryview(b"".join(chosen)),
        )

    return answer


def build_batch(*offsets: int, producer_id: int = -1, transactional: bool = False) -> bytes:
    return encode_batch(
        [Record(offset, 1000 + offset, b"k%d" % offset, b"v%d" % offset) for offset in offsets],
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
        transactional=transactional,
    )
