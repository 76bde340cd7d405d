"""DescribeProducers (API key 61): returns the producer states of a partition's log, with their open transactions.

Followers answer as well, as in Kafka, whose tool can name a broker to ask.
"""

from __future__ import annotations

from collections.abc import Generator

from chronik.api.shared.context import Context, Services
from chronik.api.shared.rights import may_do
from chronik.exchange import Reply
from chronik.log.producers import PRODUCERS_MAX, Producer
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.failures import told
from chronik.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from chronik.protocol.permissions import Operation, ResourceType

NONE = -1

TOLD_MAX = 2 * PRODUCERS_MAX
"""Maximum number of producers in a response, of 37 bytes each (four times as much while it is built).

A single partition always fits unless it has very many open transactions. Partitions that do not fit get an error, and
clients request them again.
"""


def handle(services: Services, request: DescribeProducersRequest, context: Context) -> Reply[DescribeProducersResponse]:
    return Reply.of_steps(_describe_all(services, request, context))


def _describe_all(
    services: Services, request: DescribeProducersRequest, context: Context
) -> Generator[None, None, DescribeProducersResponse]:
    topics: dict[str, dict[int, PartitionResponse]] = {}
    remaining = TOLD_MAX
    may_read = may_do(services, context, Operation.READ, ResourceType.TOPIC)
    for topic in request.topics:
        answers = topics.setdefault(topic.name, {})
        for index in topic.partition_indexes:
            if index not in answers and not may_read(topic.name):
                error = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                answers[index] = PartitionResponse(partition_index=index, **told(error))
                yield
            elif index not in answers:
                answer = answers[index] = yield from _describe_partition(services, topic.name, index, remaining)
                remaining -= len(answer.active_producers)
                yield
    return DescribeProducersResponse(
        topics=[TopicResponse(name=name, partitions=list(answers.values())) for name, answers in topics.items()]
    )


def _describe_partition(
    services: Services, topic: str, index: int, remaining: int
) -> Generator[None, None, PartitionResponse]:
    answer = PartitionResponse(partition_index=index)
    try:
        producers = services.replicas.held(topic, index).log.producers
        if len(producers) > remaining:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The response would be too large: request fewer partitions")
    except KafkaError as error:
        return PartitionResponse(partition_index=index, **told(error))
    open_since = producers.transactions.open
    for producer_id, producer in producers.items():
        answer.active_producers.append(_encode_producer(producer_id, producer, open_since.get(producer_id, NONE)))
        yield
    return answer


def _encode_producer(producer_id: int, producer: Producer, open_since: int) -> ProducerState:
    last = producer.batches[-1] if producer.batches else None
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=producer.epoch,
        last_sequence=NONE if last is None else last.last_sequence,
        last_timestamp=producer.active_ms if last is None else last.timestamp_ms,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=open_since,
    )
