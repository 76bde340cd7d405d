"""EndTxn (API key 26): commits or aborts a transaction.

The response is sent when the decision is durable; the transaction markers are written afterwards. From version 5 on,
the response contains the producer epoch of the next transaction.
"""

from __future__ import annotations

from chronik.api.shared.authorization import build_authorization_predicate
from chronik.api.shared.context import RequestContext, Services
from chronik.api.shared.transactions import ErrorVersions, find_transaction_request_error
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from chronik.protocol.permissions import AclOperation, AclResourceType

ERROR_VERSIONS = ErrorVersions(producer_fenced=2, transaction_abortable=4)
FIRST_VERSION_OF_TRANSACTIONS_V2 = 5


async def handle(services: Services, request: EndTxnRequest, context: RequestContext) -> EndTxnResponse:
    if not build_authorization_predicate(services, context, AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID)(
        request.transactional_id
    ):
        return EndTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    error = find_transaction_request_error(services.image, request.transactional_id)
    if error is not None:
        return EndTxnResponse(error_code=error)
    result = await services.transactions.end_transaction(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        commit=request.committed,
        bump_epoch=context.version >= FIRST_VERSION_OF_TRANSACTIONS_V2,
    )
    return EndTxnResponse(
        error_code=ERROR_VERSIONS.translate(result.error, context.version),
        producer_id=result.producer_id,
        producer_epoch=result.producer_epoch,
    )
