"""ListTransactions (API key 66): lists transactions of this coordinator, by state, producer id, age and pattern."""

from __future__ import annotations

from collections.abc import Callable, Generator

from chronik.api.shared.authorization import build_authorization_predicate
from chronik.api.shared.context import RequestContext, Services
from chronik.linear_regex import Pattern, PatternError
from chronik.metadata.records import Transaction, TransactionState
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.list_transactions import (
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from chronik.protocol.permissions import AclOperation, AclResourceType
from chronik.request_reply import Reply

KNOWN_STATES = {*(state.kafka_name for state in TransactionState), "Dead", "PrepareEpochFence"}
"""Transaction states by which a ListTransactions request may filter.

The last two exist only in Kafka.
"""


def handle(
    services: Services, request: ListTransactionsRequest, context: RequestContext
) -> Reply[ListTransactionsResponse]:
    try:
        pattern = Pattern(request.transactional_id_pattern) if request.transactional_id_pattern else None
    except PatternError:
        return Reply.from_response(ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION))
    return Reply.from_steps(_list_transactions(services, request, context, pattern))


def _list_transactions(
    services: Services, request: ListTransactionsRequest, context: RequestContext, pattern: Pattern | None
) -> Generator[None, None, ListTransactionsResponse]:
    listed = []
    matches_transaction_filter = _build_transaction_filter(request, services.clock.now_ms())
    may_see = build_authorization_predicate(
        services, context, AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID, audited=False
    )
    for each in services.transactions.iterate_transactions():
        yield
        if each is not None and matches_transaction_filter(each) and may_see(each.transactional_id):
            if pattern is not None and not pattern.matches(each.transactional_id):
                continue
            listed.append(
                ListedTransaction(
                    transactional_id=each.transactional_id,
                    producer_id=each.producer_id,
                    transaction_state=each.state.kafka_name,
                )
            )
    unknown = [name for name in dict.fromkeys(request.state_filters) if name not in KNOWN_STATES]
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=listed)


def _build_transaction_filter(request: ListTransactionsRequest, now_ms: int) -> Callable[[Transaction], bool]:
    states, producer_ids = set(request.state_filters), set(request.producer_id_filters)
    age_ms = request.duration_filter

    def matches_transaction_filter(transaction: Transaction) -> bool:
        if states and transaction.state.kafka_name not in states:
            return False
        if producer_ids and transaction.producer_id not in producer_ids:
            return False
        return age_ms < 0 or (not transaction.state.is_idle and now_ms - transaction.began_ms > age_ms)

    return matches_transaction_filter
