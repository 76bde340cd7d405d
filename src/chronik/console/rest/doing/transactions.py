"""Transactions: which are open, who holds what others can read, and an end for one."""

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


def list_all(call: Call, asked: Searching) -> Transactions:
    listed = {each.transaction.transactional_id: each for each in listed_transactions(call.cluster)}
    page = paged(listed, asked.search, asked.after, asked.limit)
    described = _described(call, {name: listed[name].coordinator for name in page.items})
    items = [_transaction(listed[name].coordinator, described[name]) for name in page.items if name in described]
    return Transactions(items, page.next, page.total, _holding(call, items))


def _described(call: Call, coordinators: Mapping[str, int]) -> dict[str, DescribedTransaction]:
    found: dict[str, DescribedTransaction] = {}
    for node_id in set(coordinators.values()):
        names = [name for name, each in coordinators.items() if each == node_id]
        request = DescribeTransactionsRequest(transactional_ids=names)
        try:
            response = call.cluster.node(node_id).request(request, DescribeTransactionsResponse)
        except ClientError:
            continue
        found |= {each.transactional_id: each for each in response.transaction_states if not each.error_code}
    return found


def _transaction(coordinator: int, told: DescribedTransaction) -> Transaction:
    return Transaction(
        told.transactional_id,
        told.producer_id,
        told.producer_epoch,
        told.transaction_state,
        coordinator,
        told.transaction_start_time_ms if told.transaction_start_time_ms >= 0 else None,
        told.transaction_timeout_ms,
        [TransactionPartition(topic.topic, index) for topic in told.topics for index in sorted(topic.partitions)],
    )


def _holding(call: Call, items: list[Transaction]) -> list[Holding]:
    """Returns partitions that cannot be read to their end, as a transaction is open in them."""
    wanted = {
        TopicPartition(part.topic, part.partition) for each in items if each.state in OPEN for part in each.partitions
    }
    wanted = set(sorted(wanted)[:PARTITIONS_LOOKED_AT_MAX])
    topics = metadata_of(call.cluster, sorted({each.topic for each in wanted}))
    led = led_by(topics.values(), wanted)
    ends = offsets_now(call, led, LATEST)
    stable = offsets_now(call, led, LATEST, READ_COMMITTED)
    held = sorted(each for each in ends if each in stable and stable[each][0] < ends[each][0])
    holders = _holders(call, held)
    return [Holding(*each, stable[each][0], ends[each][0], *holders.get(each, (None, None))) for each in held]


def _holders(call: Call, held: list[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
    """Returns the producer whose transaction began first, and when it was last heard of."""
    found = {}
    for partition in held:
        try:
            producers = describe_producers(call.cluster, [partition])[partition]
        except (KafkaError, ClientError):
            continue
        began = [each for each in producers if each.current_txn_start_offset != NO_TRANSACTION]
        if began:
            first = min(began, key=lambda each: each.current_txn_start_offset)
            found[partition] = first.producer_id, first.last_timestamp
    return found


def abort(call: Call, asked: DryRun) -> Plan:
    """Takes the transactional id over, as a producer does that begins: its own producer is fenced then."""
    name = call.path["transactional_id"]
    found = describe_transaction(call.cluster, name).transaction
    raise_for(found.error_code, f"transactional id {name}")
    count = sum(len(topic.partitions) for topic in found.topics)
    plan = Plan([f"abort the open transaction of {name}, which has {count} partitions"])
    plan.plan.append("its producer is fenced: it has to begin anew")
    if found.transaction_state not in OPEN:
        why = f"{name} has no open transaction: it is {found.transaction_state}"
        if not asked.dry_run:
            raise Refusal(HTTPStatus.CONFLICT, why, ErrorCode.INVALID_TXN_STATE.name)
        return Plan([], why)
    if not asked.dry_run:
        init_producer(call.cluster, name, found.transaction_timeout_ms)
        plan.done = True
    return plan
