"""DescribeTransactions (API key 65): returns state, producer and partitions of transactional ids.

A consumer group in a transaction is shown as its partition of the offsets topic, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Generator

from chronik.api.shared.authorization import NamePredicate, build_authorization_predicate
from chronik.api.shared.context import RequestContext, Services
from chronik.api.shared.long_responses import ResponseElements
from chronik.metadata.image import Image
from chronik.metadata.names import OFFSETS_TOPIC, compute_coordinator_partition
from chronik.metadata.records import Transaction
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.describe_transactions import (
    DescribedTransaction,
    DescribedTransactionTopic,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from chronik.protocol.permissions import AclOperation, AclResourceType
from chronik.request_reply import Reply


def handle(
    services: Services, request: DescribeTransactionsRequest, context: RequestContext
) -> Reply[DescribeTransactionsResponse]:
    return Reply.from_steps(_describe_transactions(services, request, context))


def _describe_transactions(
    services: Services, request: DescribeTransactionsRequest, context: RequestContext
) -> Generator[None, None, DescribeTransactionsResponse]:
    states = ResponseElements(DescribeTransactionsResponse, context.version)
    may_describe = build_authorization_predicate(
        services, context, AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID
    )
    may_describe_topic = build_authorization_predicate(
        services, context, AclOperation.DESCRIBE, AclResourceType.TOPIC, audited=False
    )
    for transactional_id in dict.fromkeys(request.transactional_ids):
        try:
            if not may_describe(transactional_id):
                raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            found = (
                services.transactions.describe_transaction(transactional_id)
                if transactional_id
                else ErrorCode.INVALID_REQUEST
            )
            if isinstance(found, ErrorCode):
                raise KafkaError(found)
            states.add(_encode_transaction(services.image, found, may_describe_topic))
        except KafkaError as error:
            states.add_error(DescribedTransaction(transactional_id=transactional_id, error_code=error.code))
        yield
    return DescribeTransactionsResponse(transaction_states=states.to_list(DescribedTransaction))


def _encode_transaction(
    image: Image, transaction: Transaction, may_describe_topic: NamePredicate
) -> DescribedTransaction:
    return DescribedTransaction(
        transactional_id=transaction.transactional_id,
        transaction_state=transaction.state.kafka_name,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.began_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[
            DescribedTransactionTopic(topic=name, partitions=indexes)
            for name, indexes in _group_partitions_by_topic(image, transaction).items()
            if may_describe_topic(name)
        ],
    )


def _group_partitions_by_topic(image: Image, transaction: Transaction) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for partition in transaction.partitions:
        topic = image.topics_by_id.get(partition.topic_id)
        if topic is not None:
            found.setdefault(topic.name, []).append(partition.index)
    offsets = image.topics.get(OFFSETS_TOPIC)
    if offsets is not None and transaction.groups:
        indexes = {compute_coordinator_partition(group_id, len(offsets.partitions)) for group_id in transaction.groups}
        found[OFFSETS_TOPIC] = sorted(indexes)
    return found
