"""AddPartitionsToTxn (API key 24): adds partitions to a transaction before the producer writes to them.

Either all partitions of a transaction are added or none: if one does not exist, the others fail with
OPERATION_NOT_ATTEMPTED. From version 4 on, which Kafka's brokers use, a request contains several independent
transactions and may only verify that they contain the partitions (`verify_only`).
"""

from __future__ import annotations

import asyncio

from chronik.api.shared.authorization import build_authorization_predicate, require_cluster_permission
from chronik.api.shared.context import RequestContext, Services
from chronik.api.shared.long_responses import deduplicate
from chronik.api.shared.transactions import ErrorVersions, find_transaction_request_error
from chronik.metadata.chunking import YieldTimer, iter_chunks
from chronik.metadata.commands.transactions import TransactionPartition
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from chronik.protocol.permissions import AclOperation, AclResourceType

ERROR_VERSIONS = ErrorVersions(producer_fenced=2, transaction_abortable=5)
FIRST_VERSION_WITH_MANY_TRANSACTIONS = 4

_TopicPartition = tuple[str, int]


class _Authorization:
    """Permission checks for an AddPartitionsToTxn request that contains one transaction.

    Requests with several transactions need CLUSTER_ACTION.
    """

    def __init__(self, services: Services, context: RequestContext) -> None:
        self.may_begin = build_authorization_predicate(
            services, context, AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID
        )
        self.may_write = build_authorization_predicate(services, context, AclOperation.WRITE, AclResourceType.TOPIC)


async def handle(
    services: Services, request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse:
    version = context.version
    if version >= FIRST_VERSION_WITH_MANY_TRANSACTIONS:
        require_cluster_permission(services, context, AclOperation.CLUSTER_ACTION)
    checks = _Authorization(services, context) if version < FIRST_VERSION_WITH_MANY_TRANSACTIONS else None
    if version < FIRST_VERSION_WITH_MANY_TRANSACTIONS:
        only = AddPartitionsToTxnTransaction(
            transactional_id=request.transactional_id,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            topics=request.topics,
        )
        return AddPartitionsToTxnResponse(results_by_topic=await _build_topic_results(services, only, version, checks))
    response = AddPartitionsToTxnResponse()
    for chunk in iter_chunks(deduplicate(request.transactions, lambda each: each.transactional_id)):
        results = await asyncio.gather(*(_build_topic_results(services, each, version) for each in chunk))
        response.results_by_transaction += [
            AddPartitionsToTxnResult(transactional_id=each.transactional_id, topic_results=topics)
            for each, topics in zip(chunk, results, strict=True)
        ]
    return response


async def _build_topic_results(
    services: Services, transaction: AddPartitionsToTxnTransaction, version: int, checks: _Authorization | None = None
) -> list[AddPartitionsToTxnTopicResult]:
    named, pace = dict[_TopicPartition, None](), YieldTimer()
    for topic in transaction.topics:
        for chunk in iter_chunks(topic.partitions):
            named.update(((topic.name, index), None) for index in chunk)
            await pace.yield_if_due()
    topics: dict[str, AddPartitionsToTxnTopicResult] = {}
    for chunk_codes in iter_chunks(
        (await _add_or_verify_partitions(services, transaction, list(named), checks)).items()
    ):
        for (name, index), code in chunk_codes:
            result = topics.setdefault(name, AddPartitionsToTxnTopicResult(name=name))
            code_for_version = ERROR_VERSIONS.translate(code, version)
            result.results_by_partition.append(
                AddPartitionsToTxnPartitionResult(partition_index=index, error_code=code_for_version)
            )
        await pace.yield_if_due()
    return list(topics.values())


async def _add_or_verify_partitions(
    services: Services,
    transaction: AddPartitionsToTxnTransaction,
    named: list[_TopicPartition],
    checks: _Authorization | None,
) -> dict[_TopicPartition, ErrorCode]:
    if checks is not None and not checks.may_begin(transaction.transactional_id):
        return dict.fromkeys(named, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    refused = find_transaction_request_error(services.image, transaction.transactional_id)
    if refused is not None:
        return dict.fromkeys(named, refused)
    found, missing = await _find_partitions(services, named, checks)
    if missing:
        return {each: missing.get(each, ErrorCode.OPERATION_NOT_ATTEMPTED) for each in named}
    producer = transaction.transactional_id, transaction.producer_id, transaction.producer_epoch
    if transaction.verify_only:
        verified = services.transactions.verify_partitions(*producer, list(found.values()))
        return {each: verified[partition] for each, partition in found.items()}
    return dict.fromkeys(named, await services.transactions.add_to_transaction(*producer, list(found.values())))


async def _find_partitions(
    services: Services, named: list[_TopicPartition], checks: _Authorization | None
) -> tuple[dict[_TopicPartition, TransactionPartition], dict[_TopicPartition, ErrorCode]]:
    """Split the requested partitions into existing ones and those with an error code."""
    found: dict[_TopicPartition, TransactionPartition] = {}
    missing: dict[_TopicPartition, ErrorCode] = {}
    pace = YieldTimer()
    for chunk in iter_chunks(named):
        for name, index in chunk:
            topic = services.image.topics.get(name)
            if checks is not None and not checks.may_write(name):
                missing[name, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif topic is None or not topic.has_partition(index):
                missing[name, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif topic.internal:
                missing[name, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            else:
                found[name, index] = TransactionPartition(topic.id, index)
        await pace.yield_if_due()
    return found, missing
