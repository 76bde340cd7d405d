"""The requests of transactional producers, encoded and decoded as on the wire."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from chronik.api import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    init_producer_id,
    offset_fetch,
    produce,
    txn_offset_commit,
)
from chronik.metadata.records import Topic
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from chronik.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from chronik.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from chronik.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from chronik.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from chronik.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from chronik.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

from .process import TransactionalProcess

ALL_ACKS = -1
PRODUCE_TIMEOUT_MS = 3000
OFFSET_FETCH_VERSION = 7


class Producer(NamedTuple):
    """The transactional id, producer id and epoch of a request."""

    transactional_id: str
    id: int = -1
    epoch: int = -1


class Versions(NamedTuple):
    """The API versions that a client uses."""

    init_producer_id: int
    add_partitions: int
    add_offsets: int
    offset_commit: int
    end: int
    produce: int


OLD_VERSIONS = Versions(2, 1, 1, 2, 1, 9)
"""An old client, which knows neither PRODUCER_FENCED nor TRANSACTION_ABORTABLE."""
V1 = Versions(4, 3, 4, 4, 4, 11)
V2 = Versions(5, 3, 4, 5, 5, 13)
"""A client with an epoch per transaction, which adds no partitions explicitly."""


class ProducerResponse(NamedTuple):
    code: ErrorCode
    producer_id: int = -1
    producer_epoch: int = -1


Work = Callable[[TransactionalProcess], Awaitable[ProducerResponse]]


def init(who: Producer, timeout_ms: int, version: int) -> Work:
    async def work(process: TransactionalProcess) -> ProducerResponse:
        request = InitProducerIdRequest(
            transactional_id=who.transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=who.id,
            producer_epoch=who.epoch,
        )
        response = await process.handle_request(init_producer_id.handle, request, version, InitProducerIdResponse)
        return ProducerResponse(ErrorCode(response.error_code), response.producer_id, response.producer_epoch)

    return work


def add_partition(who: Producer, topic: Topic, index: int, version: int) -> Work:
    """Add a partition by topic name. If another topic has that name now, the client's metadata is outdated."""

    async def work(process: TransactionalProcess) -> ProducerResponse:
        known = process.store.image.topics.get(topic.name)
        if known is None or known.id != topic.id:
            return ProducerResponse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        request = AddPartitionsToTxnRequest(
            transactional_id=who.transactional_id,
            producer_id=who.id,
            producer_epoch=who.epoch,
            topics=[AddPartitionsToTxnTopic(name=topic.name, partitions=[index])],
        )
        response = await process.handle_request(
            add_partitions_to_txn.handle, request, version, AddPartitionsToTxnResponse
        )
        return ProducerResponse(ErrorCode(response.results_by_topic[0].results_by_partition[0].error_code))

    return work


def add_group(who: Producer, group: str, version: int) -> Work:
    async def work(process: TransactionalProcess) -> ProducerResponse:
        request = AddOffsetsToTxnRequest(
            transactional_id=who.transactional_id, producer_id=who.id, producer_epoch=who.epoch, group_id=group
        )
        response = await process.handle_request(add_offsets_to_txn.handle, request, version, AddOffsetsToTxnResponse)
        return ProducerResponse(ErrorCode(response.error_code))

    return work


def stage(who: Producer, group: str, topic: str, offset: int, version: int) -> Work:
    async def work(process: TransactionalProcess) -> ProducerResponse:
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        request = TxnOffsetCommitRequest(
            transactional_id=who.transactional_id,
            producer_id=who.id,
            producer_epoch=who.epoch,
            group_id=group,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
        )
        response = await process.handle_request(txn_offset_commit.handle, request, version, TxnOffsetCommitResponse)
        return ProducerResponse(ErrorCode(response.topics[0].partitions[0].error_code))

    return work


def end(who: Producer, version: int, *, commit: bool) -> Work:
    async def work(process: TransactionalProcess) -> ProducerResponse:
        request = EndTxnRequest(
            transactional_id=who.transactional_id, producer_id=who.id, producer_epoch=who.epoch, committed=commit
        )
        response = await process.handle_request(end_txn.handle, request, version, EndTxnResponse)
        return ProducerResponse(ErrorCode(response.error_code), response.producer_id, response.producer_epoch)

    return work


def send(who: Producer, topic: Topic, index: int, data: bytes, version: int) -> Work:
    """Produce a batch. Before version 13, the topic is addressed by name: see `add_partition`."""

    async def work(process: TransactionalProcess) -> ProducerResponse:
        known = process.store.image.topics.get(topic.name)
        if known is None or known.id != topic.id:
            return ProducerResponse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        records = memoryview(bytearray(data))
        partition = PartitionProduceData(index=index, records=records)
        request = ProduceRequest(
            transactional_id=who.transactional_id,
            acks=ALL_ACKS,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=topic.name, topic_id=topic.id, partition_data=[partition])],
        )
        response = await process.handle_request(produce.handle, request, version, ProduceResponse)
        return ProducerResponse(ErrorCode(response.responses[0].partition_responses[0].error_code))

    return work


def fetch_offset(group: str, topic: str) -> Callable[[TransactionalProcess], Awaitable[tuple[ErrorCode, int]]]:
    """Fetch a group's stable offset. The serving node confirms first that its image is current."""

    async def work(process: TransactionalProcess) -> tuple[ErrorCode, int]:
        try:
            await process.store.read_barrier()
        except KafkaError:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1
        request = OffsetFetchRequest(
            group_id=group,
            topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[0])],
            require_stable=True,
        )
        response = await process.handle_request(offset_fetch.handle, request, OFFSET_FETCH_VERSION, OffsetFetchResponse)
        answer = response.topics[0].partitions[0]
        return ErrorCode(answer.error_code), answer.committed_offset

    return work
