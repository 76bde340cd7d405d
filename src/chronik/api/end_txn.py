"""EndTxn (API key 26): commits or aborts a transaction.

The response is sent when the decision is durable; the transaction markers are written afterwards. From version 5 on,
the response contains the producer epoch of the next transaction.
"""

from __future__ import annotations

from chronik.api.shared.context import Context, Services
from chronik.api.shared.rights import may_do
from chronik.api.shared.transactions import FirstVersions, refusal
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from chronik.protocol.permissions import Operation, ResourceType

FIRST_VERSIONS = FirstVersions(fenced=2, abortable=4)
FIRST_VERSION_OF_TRANSACTIONS_V2 = 5


async def handle(services: Services, request: EndTxnRequest, context: Context) -> EndTxnResponse:
    if not may_do(services, context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID)(request.transactional_id):
        return EndTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    error = refusal(services.image, request.transactional_id)
    if error is not None:
        return EndTxnResponse(error_code=error)
    result = await services.transactions.end(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        commit=request.committed,
        bump=context.version >= FIRST_VERSION_OF_TRANSACTIONS_V2,
    )
    return EndTxnResponse(
        error_code=FIRST_VERSIONS.told(result.error, context.version),
        producer_id=result.producer_id,
        producer_epoch=result.producer_epoch,
    )
