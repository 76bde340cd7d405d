"""AddPartitionsToTxn (API key 24): adds partitions to a transaction before the producer writes to them.

Either all partitions of a transaction are added or none: if one does not exist, the others fail with
OPERATION_NOT_ATTEMPTED. From version 4 on, which Kafka's brokers use, a request contains several independent
transactions and may only verify that they contain the partitions (`verify_only`).
"""

from __future__ import annotations

import asyncio

from chronik.api.shared.context import Context, Services
from chronik.api.shared.long_answers import once
from chronik.api.shared.rights import check_cluster, may_do
from chronik.api.shared.transactions import FirstVersions, refusal
from chronik.metadata.commands.transactions import TransactionPartition
from chronik.metadata.slices import Pace, in_pieces
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from chronik.protocol.permissions import Operation, ResourceType

FIRST_VERSIONS = FirstVersions(fenced=2, abortable=5)
FIRST_VERSION_WITH_MANY_TRANSACTIONS = 4

_TopicPartition = tuple[str, int]


class _Authorization:
    """Permission checks for a client's single transaction; batched requests need CLUSTER_ACTION instead."""

    def __init__(self, services: Services, context: Context) -> None:
        self.may_begin = may_do(services, context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID)
        self.may_write = may_do(services, context, Operation.WRITE, ResourceType.TOPIC)


async def handle(
    services: Services, request: AddPartitionsToTxnRequest, context: Context
) -> AddPartitionsToTxnResponse:
    version = context.version
    if version >= FIRST_VERSION_WITH_MANY_TRANSACTIONS:
        check_cluster(services, context, Operation.CLUSTER_ACTION)
    checks = _Authorization(services, context) if version < FIRST_VERSION_WITH_MANY_TRANSACTIONS else None
    if version < FIRST_VERSION_WITH_MANY_TRANSACTIONS:
        only = AddPartitionsToTxnTransaction(
            transactional_id=request.transactional_id,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            topics=request.topics,
        )
        return AddPartitionsToTxnResponse(results_by_topic=await _results(services, only, version, checks))
    response = AddPartitionsToTxnResponse()
    for chunk in in_pieces(once(request.transactions, lambda each: each.transactional_id)):
        results = await asyncio.gather(*(_results(services, each, version) for each in chunk))
        response.results_by_transaction += [
            AddPartitionsToTxnResult(transactional_id=each.transactional_id, topic_results=topics)
            for each, topics in zip(chunk, results, strict=True)
        ]
    return response


async def _results(
    services: Services, transaction: AddPartitionsToTxnTransaction, version: int, checks: _Authorization | None = None
) -> list[AddPartitionsToTxnTopicResult]:
    named, pace = dict[_TopicPartition, None](), Pace()
    for topic in transaction.topics:
        for chunk in in_pieces(topic.partitions):
            named.update(((topic.name, index), None) for index in chunk)
            await pace.yield_if_due()
    topics: dict[str, AddPartitionsToTxnTopicResult] = {}
    for chunk_codes in in_pieces((await _add_or_verify(services, transaction, list(named), checks)).items()):
        for (name, index), code in chunk_codes:
            result = topics.setdefault(name, AddPartitionsToTxnTopicResult(name=name))
            code_for_version = FIRST_VERSIONS.told(code, version)
            result.results_by_partition.append(
                AddPartitionsToTxnPartitionResult(partition_index=index, error_code=code_for_version)
            )
        await pace.yield_if_due()
    return list(topics.values())


async def _add_or_verify(
    services: Services,
    transaction: AddPartitionsToTxnTransaction,
    named: list[_TopicPartition],
    checks: _Authorization | None,
) -> dict[_TopicPartition, ErrorCode]:
    if checks is not None and not checks.may_begin(transaction.transactional_id):
        return dict.fromkeys(named, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    refused = refusal(services.image, transaction.transactional_id)
    if refused is not None:
        return dict.fromkeys(named, refused)
    found, missing = await _find_partitions(services, named, checks)
    if missing:
        return {each: missing.get(each, ErrorCode.OPERATION_NOT_ATTEMPTED) for each in named}
    producer = transaction.transactional_id, transaction.producer_id, transaction.producer_epoch
    if transaction.verify_only:
        verified = services.transactions.verify(*producer, list(found.values()))
        return {each: verified[partition] for each, partition in found.items()}
    return dict.fromkeys(named, await services.transactions.add(*producer, list(found.values())))


async def _find_partitions(
    services: Services, named: list[_TopicPartition], checks: _Authorization | None
) -> tuple[dict[_TopicPartition, TransactionPartition], dict[_TopicPartition, ErrorCode]]:
    """Return the partitions that exist, and the error codes of those that cannot be part of a transaction."""
    found: dict[_TopicPartition, TransactionPartition] = {}
    missing: dict[_TopicPartition, ErrorCode] = {}
    pace = Pace()
    for chunk in in_pieces(named):
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
