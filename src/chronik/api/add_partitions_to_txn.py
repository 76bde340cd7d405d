"""AddPartitionsToTxn: notes which partitions a transaction will write to.

All partitions of a transaction are added, or none: if one does not exist, the others are OPERATION_NOT_ATTEMPTED. From
version 4 on, which Kafka's brokers use among each other, a request has many transactions, each for itself, and may ask
only whether the partitions are in them.
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

Named = tuple[str, int]


class _Rights:
    """What clients must be allowed, who name one transaction; brokers, who name many, act for the cluster."""

    def __init__(self, services: Services, context: Context) -> None:
        self.may_begin = may_do(services, context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID)
        self.may_write = may_do(services, context, Operation.WRITE, ResourceType.TOPIC)


async def handle(
    services: Services, request: AddPartitionsToTxnRequest, context: Context
) -> AddPartitionsToTxnResponse:
    version = context.version
    if version >= FIRST_VERSION_WITH_MANY_TRANSACTIONS:
        check_cluster(services, context, Operation.CLUSTER_ACTION)
    rights = _Rights(services, context) if version < FIRST_VERSION_WITH_MANY_TRANSACTIONS else None
    if version < FIRST_VERSION_WITH_MANY_TRANSACTIONS:
        only = AddPartitionsToTxnTransaction(
            transactional_id=request.transactional_id,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            topics=request.topics,
        )
        return AddPartitionsToTxnResponse(results_by_topic=await _results(services, only, version, rights))
    response = AddPartitionsToTxnResponse()
    for some in in_pieces(once(request.transactions, lambda each: each.transactional_id)):
        results = await asyncio.gather(*(_results(services, each, version) for each in some))
        response.results_by_transaction += [
            AddPartitionsToTxnResult(transactional_id=each.transactional_id, topic_results=topics)
            for each, topics in zip(some, results, strict=True)
        ]
    return response


async def _results(
    services: Services, transaction: AddPartitionsToTxnTransaction, version: int, rights: _Rights | None = None
) -> list[AddPartitionsToTxnTopicResult]:
    named, pace = dict[Named, None](), Pace()
    for topic in transaction.topics:
        for some in in_pieces(topic.partitions):
            named.update(((topic.name, index), None) for index in some)
            await pace.yield_if_due()
    topics: dict[str, AddPartitionsToTxnTopicResult] = {}
    for some_codes in in_pieces((await _codes(services, transaction, list(named), rights)).items()):
        for (name, index), code in some_codes:
            result = topics.setdefault(name, AddPartitionsToTxnTopicResult(name=name))
            told = FIRST_VERSIONS.told(code, version)
            result.results_by_partition.append(
                AddPartitionsToTxnPartitionResult(partition_index=index, error_code=told)
            )
        await pace.yield_if_due()
    return list(topics.values())


async def _codes(
    services: Services, transaction: AddPartitionsToTxnTransaction, named: list[Named], rights: _Rights | None
) -> dict[Named, ErrorCode]:
    if rights is not None and not rights.may_begin(transaction.transactional_id):
        return dict.fromkeys(named, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    refused = refusal(services.image, transaction.transactional_id)
    if refused is not None:
        return dict.fromkeys(named, refused)
    found, missing = await _found(services, named, rights)
    if missing:
        return {each: missing.get(each, ErrorCode.OPERATION_NOT_ATTEMPTED) for each in named}
    who = transaction.transactional_id, transaction.producer_id, transaction.producer_epoch
    if transaction.verify_only:
        verified = services.transactions.verify(*who, list(found.values()))
        return {each: verified[partition] for each, partition in found.items()}
    return dict.fromkeys(named, await services.transactions.add(*who, list(found.values())))


async def _found(
    services: Services, named: list[Named], rights: _Rights | None
) -> tuple[dict[Named, TransactionPartition], dict[Named, ErrorCode]]:
    """Returns the partitions that there are, and why the others cannot be part of a transaction."""
    found: dict[Named, TransactionPartition] = {}
    missing: dict[Named, ErrorCode] = {}
    pace = Pace()
    for some in in_pieces(named):
        for name, index in some:
            topic = services.image.topics.get(name)
            if rights is not None and not rights.may_write(name):
                missing[name, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif topic is None or not topic.has_partition(index):
                missing[name, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif topic.internal:
                missing[name, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            else:
                found[name, index] = TransactionPartition(topic.id, index)
        await pace.yield_if_due()
    return found, missing
