"""Operations on transactions: list and abort."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from chronik.client.cluster import raise_for
from chronik.client.errors import ClientError
from chronik.client.offsets import LATEST, READ_COMMITTED
from chronik.client.records import TopicPartition
from chronik.client.transactions import NO_TRANSACTION, describe_producers, describe_transaction, init_producer
from chronik.client.transactions import list_transactions as listed_transactions
from chronik.console.rest.call import Call
from chronik.console.rest.doing.shared import led_by, metadata_of, offsets_now, paged
from chronik.console.rest.refusals import Refusal
from chronik.console.rest.shapes.common import DryRun, Plan, Searching
from chronik.console.rest.shapes.transactions import Holding, Transaction, TransactionPartition, Transactions
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.describe_transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)

OPEN: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")
PARTITIONS_LOOKED_AT_MAX: Final = 500


def list_all(context: Call, params: Searching) -> Transactions:
    """List transactions, and the partitions whose last stable offset they hold back."""
    listed = {each.transaction.transactional_id: each for each in listed_transactions(context.cluster)}
    page = paged(listed, params.search, params.after, params.limit)
    described = _describe_transactions(context, {name: listed[name].coordinator for name in page.items})
    items = [_build_transaction(listed[name].coordinator, described[name]) for name in page.items if name in described]
    return Transactions(items, page.next, page.total, _find_holding(context, items))


def _describe_transactions(context: Call, coordinators: Mapping[str, int]) -> dict[str, DescribedTransaction]:
    found: dict[str, DescribedTransaction] = {}
    for node_id in set(coordinators.values()):
        names = [name for name, each in coordinators.items() if each == node_id]
        request = DescribeTransactionsRequest(transactional_ids=names)
        try:
            response = context.cluster.node(node_id).request(request, DescribeTransactionsResponse)
        except ClientError:
            continue
        found |= {each.transactional_id: each for each in response.transaction_states if not each.error_code}
    return found


def _build_transaction(coordinator: int, description: DescribedTransaction) -> Transaction:
    return Transaction(
        description.transactional_id,
        description.producer_id,
        description.producer_epoch,
        description.transaction_state,
        coordinator,
        description.transaction_start_time_ms if description.transaction_start_time_ms >= 0 else None,
        description.transaction_timeout_ms,
        [
            TransactionPartition(topic.topic, index)
            for topic in description.topics
            for index in sorted(topic.partitions)
        ],
    )


def _find_holding(context: Call, items: list[Transaction]) -> list[Holding]:
    """Return the partitions whose last stable offset is held back by an open transaction."""
    wanted = {
        TopicPartition(part.topic, part.partition) for each in items if each.state in OPEN for part in each.partitions
    }
    wanted = set(sorted(wanted)[:PARTITIONS_LOOKED_AT_MAX])
    topics = metadata_of(context.cluster, sorted({each.topic for each in wanted}))
    led = led_by(topics.values(), wanted)
    ends = offsets_now(context, led, LATEST)
    stable = offsets_now(context, led, LATEST, READ_COMMITTED)
    held = sorted(each for each in ends if each in stable and stable[each][0] < ends[each][0])
    holders = _find_holders(context, held)
    return [Holding(*each, stable[each][0], ends[each][0], *holders.get(each, (None, None))) for each in held]


def _find_holders(context: Call, held: list[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
    """Return, by partition, the producer with the oldest open transaction and the time of its last record."""
    found = {}
    for partition in held:
        try:
            producers = describe_producers(context.cluster, [partition])[partition]
        except (KafkaError, ClientError):
            continue
        open_producers = [each for each in producers if each.current_txn_start_offset != NO_TRANSACTION]
        if open_producers:
            first = min(open_producers, key=lambda each: each.current_txn_start_offset)
            found[partition] = first.producer_id, first.last_timestamp
    return found


def abort(context: Call, params: DryRun) -> Plan:
    """Abort an open transaction by initializing a producer with its transactional id, which fences its own producer."""
    name = context.path["transactional_id"]
    found = describe_transaction(context.cluster, name).transaction
    raise_for(found.error_code, f"transactional id {name}")
    count = sum(len(topic.partitions) for topic in found.topics)
    plan = Plan([f"abort the open transaction of {name} on {count} partitions"])
    plan.plan.append("fence its producer: the application has to create a new one")
    if found.transaction_state not in OPEN:
        message = f"transactional id {name} has no open transaction: its state is {found.transaction_state}"
        if not params.dry_run:
            raise Refusal(HTTPStatus.CONFLICT, message, ErrorCode.INVALID_TXN_STATE.name)
        return Plan([], message)
    if not params.dry_run:
        init_producer(context.cluster, name, found.transaction_timeout_ms)
        plan.done = True
    return plan
