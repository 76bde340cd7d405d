"""AddOffsetsToTxn (API key 25): adds a consumer group to a transaction that will commit offsets of the group."""

from __future__ import annotations

from chronik.api.shared.authorization import find_txn_offsets_authorization_error
from chronik.api.shared.context import RequestContext, Services
from chronik.api.shared.transactions import ErrorVersions, find_transaction_request_error
from chronik.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

ERROR_VERSIONS = ErrorVersions(producer_fenced=2, transaction_abortable=4)


async def handle(
    services: Services, request: AddOffsetsToTxnRequest, context: RequestContext
) -> AddOffsetsToTxnResponse:
    code = find_txn_offsets_authorization_error(services, context, request.transactional_id, request.group_id)
    code = code or find_transaction_request_error(services.image, request.transactional_id)
    if code is None:
        code = await services.transactions.add_to_transaction(
            request.transactional_id, request.producer_id, request.producer_epoch, groups=(request.group_id,)
        )
    return AddOffsetsToTxnResponse(error_code=ERROR_VERSIONS.translate(code, context.version))
