"""AddOffsetsToTxn (API key 25): adds a consumer group to a transaction that will commit offsets of the group."""

from __future__ import annotations

from chronik.api.shared.context import Context, Services
from chronik.api.shared.rights import refusal_of_offsets
from chronik.api.shared.transactions import FirstVersions, refusal
from chronik.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

FIRST_VERSIONS = FirstVersions(fenced=2, abortable=4)


async def handle(services: Services, request: AddOffsetsToTxnRequest, context: Context) -> AddOffsetsToTxnResponse:
    code = refusal_of_offsets(services, context, request.transactional_id, request.group_id)
    code = code or refusal(services.image, request.transactional_id)
    if code is None:
        code = await services.transactions.add(
            request.transactional_id, request.producer_id, request.producer_epoch, groups=(request.group_id,)
        )
    return AddOffsetsToTxnResponse(error_code=FIRST_VERSIONS.told(code, context.version))
