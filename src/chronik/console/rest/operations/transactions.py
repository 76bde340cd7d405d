"""Operations on transactions: list and abort."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from chronik.client.cluster import raise_for_code
from chronik.client.errors import ClientError
from chronik.client.offsets import LATEST_TIMESTAMP, READ_COMMITTED
from chronik.client.records import TopicPartition
from chronik.client.transactions import NO_START_OFFSET, describe_producers, describe_transaction, init_transactional_id
from chronik.client.transactions import list_transactions as listed_transactions
from chronik.console.rest.context import OperationContext
from chronik.console.rest.errors import RestError
from chronik.console.rest.models.common import DryRun, Plan, Searching
from chronik.console.rest.models.transactions import Holding, Transaction, TransactionPartition, Transactions
from chronik.console.rest.operations.shared import (
    fetch_available_offsets,
    fetch_topic_metadata,
    group_partitions_by_leader,
    paginate_names,
)
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.describe_transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from chronik.protocol.permissions import AclResourceType
from chronik.wording import pluralize

OPEN_STATES: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")
EXAMINED_PARTITIONS_MAX: Final = 500


def list_all(context: OperationContext, params: Searching) -> Transactions:
    """List transactions, and the partitions in which they keep the last stable offset from advancing."""
    listed = {each.transaction.transactional_id: each for each in listed_transactions(context.cluster)}
    page = paginate_names(listed, params.search, params.after, params.limit)
    described = _describe_transactions(context, {name: listed[name].coordinator for name in page.items})
    items = [_build_transaction(listed[name].coordinator, described[name]) for name in page.items if name in described]
    operations = context.find_authorized_operations(AclResourceType.TRANSACTIONAL_ID, page.items)
    for each in items:
        each.authorized_operations = operations[each.transactional_id]
    return Transactions(items, page.next, page.total, _find_blocked_partitions(context, items))


def _describe_transactions(
    context: OperationContext, coordinators: Mapping[str, int]
) -> dict[str, DescribedTransaction]:
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


def _find_blocked_partitions(context: OperationContext, items: list[Transaction]) -> list[Holding]:
    """Return the partitions in which an open transaction keeps the last stable offset from advancing."""
    wanted = {
        TopicPartition(part.topic, part.partition)
        for each in items
        if each.state in OPEN_STATES
        for part in each.partitions
    }
    wanted = set(sorted(wanted)[:EXAMINED_PARTITIONS_MAX])
    topics = fetch_topic_metadata(context.cluster, sorted({each.topic for each in wanted}))
    led = group_partitions_by_leader(topics.values(), wanted)
    ends = fetch_available_offsets(context, led, LATEST_TIMESTAMP)
    stable = fetch_available_offsets(context, led, LATEST_TIMESTAMP, READ_COMMITTED)
    held = sorted(each for each in ends if each in stable and stable[each][0] < ends[each][0])
    holders = _find_oldest_open_transactions(context, held)
    return [Holding(*each, stable[each][0], ends[each][0], *holders.get(each, (None, None))) for each in held]


def _find_oldest_open_transactions(
    context: OperationContext, held: list[TopicPartition]
) -> dict[TopicPartition, tuple[int, int]]:
    """Return the producer id of the oldest open transaction in each partition, and the time of its last record."""
    found = {}
    for partition in held:
        try:
            producers = describe_producers(context.cluster, [partition])[partition]
        except (KafkaError, ClientError):
            continue
        open_producers = [each for each in producers if each.current_txn_start_offset != NO_START_OFFSET]
        if open_producers:
            first = min(open_producers, key=lambda each: each.current_txn_start_offset)
            found[partition] = first.producer_id, first.last_timestamp
    return found


def abort(context: OperationContext, params: DryRun) -> Plan:
    """Abort an open transaction: initialize a producer with its transactional id, which fences the current producer."""
    name = context.path_parameters["transactional_id"]
    found = describe_transaction(context.cluster, name).transaction
    raise_for_code(found.error_code, f"transactional id {name}")
    count = sum(len(topic.partitions) for topic in found.topics)
    plan = Plan([f"abort the open transaction of {name} on {pluralize(count, 'partition')}"])
    plan.plan.append("fence its producer: the application has to create a new one")
    if found.transaction_state not in OPEN_STATES:
        message = f"transactional id {name} has no open transaction: its state is {found.transaction_state}"
        if not params.dry_run:
            raise RestError(HTTPStatus.CONFLICT, message, ErrorCode.INVALID_TXN_STATE.name)
        return Plan([], message)
    if not params.dry_run:
        init_transactional_id(context.cluster, name, found.transaction_timeout_ms)
        plan.done = True
    return plan
