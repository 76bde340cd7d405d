"""DescribeProducers (API key 61): returns the producer states of a partition's log, with their open transactions.

Followers answer as well, as in Kafka, whose tool can name a broker to ask.
"""

from __future__ import annotations

from collections.abc import Generator

from chronik.api.shared.authorization import build_authorization_predicate
from chronik.api.shared.context import RequestContext, Services
from chronik.log.producer_state import PRODUCERS_MAX, ProducerStateEntry
from chronik.protocol.error_responses import build_error_fields
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from chronik.protocol.permissions import AclOperation, AclResourceType
from chronik.request_reply import Reply

NONE = -1

RESPONSE_PRODUCERS_MAX = 2 * PRODUCERS_MAX
"""Maximum number of producers in a DescribeProducers response.

A single partition always fits unless it has very many open transactions. Partitions that do not fit get an error, and
clients request them again.
"""


def handle(
    services: Services, request: DescribeProducersRequest, context: RequestContext
) -> Reply[DescribeProducersResponse]:
    return Reply.from_steps(_describe_partitions(services, request, context))


def _describe_partitions(
    services: Services, request: DescribeProducersRequest, context: RequestContext
) -> Generator[None, None, DescribeProducersResponse]:
    topics: dict[str, dict[int, PartitionResponse]] = {}
    remaining = RESPONSE_PRODUCERS_MAX
    may_read = build_authorization_predicate(services, context, AclOperation.READ, AclResourceType.TOPIC)
    for topic in request.topics:
        answers = topics.setdefault(topic.name, {})
        for index in topic.partition_indexes:
            if index not in answers and not may_read(topic.name):
                error = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                answers[index] = PartitionResponse(partition_index=index, **build_error_fields(error))
                yield
            elif index not in answers:
                answer = answers[index] = yield from _describe_partition_producers(
                    services, topic.name, index, remaining
                )
                remaining -= len(answer.active_producers)
                yield
    return DescribeProducersResponse(
        topics=[TopicResponse(name=name, partitions=list(answers.values())) for name, answers in topics.items()]
    )


def _describe_partition_producers(
    services: Services, topic: str, index: int, remaining: int
) -> Generator[None, None, PartitionResponse]:
    answer = PartitionResponse(partition_index=index)
    try:
        producers = services.replicas.get_hosted_replica(topic, index).log.producers
        if len(producers) > remaining:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The response would be too large: request fewer partitions")
    except KafkaError as error:
        return PartitionResponse(partition_index=index, **build_error_fields(error))
    open_since = producers.transactions.open
    for producer_id, producer in producers.items():
        answer.active_producers.append(_encode_producer(producer_id, producer, open_since.get(producer_id, NONE)))
        yield
    return answer


def _encode_producer(producer_id: int, producer: ProducerStateEntry, open_since: int) -> ProducerState:
    last = producer.batches[-1] if producer.batches else None
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=producer.epoch,
        last_sequence=NONE if last is None else last.last_sequence,
        last_timestamp=producer.last_active_ms if last is None else last.timestamp_ms,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=open_since,
    )
