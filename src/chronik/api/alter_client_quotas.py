"""AlterClientQuotas (API key 49): sets and removes quotas of users, client ids and IP addresses, or validates it."""

from __future__ import annotations

from chronik.admin.quotas import QuotaChangeRequest, alter_quotas
from chronik.api.shared.context import RequestContext, Services
from chronik.limits import QUOTA_ALTERATIONS_MAX
from chronik.protocol.error_responses import build_error_fields
from chronik.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    QuotaAlterationEntity,
    QuotaAlterationEntry,
    QuotaAlterationResult,
)
from chronik.request_reply import Disconnect
from chronik.security.quotas.entities import ADDRESS_KEYS, CLIENT_KEYS, ENTITY_TYPES, QuotaValueChange

REQUEST_ENTITIES_MAX = 10 * QUOTA_ALTERATIONS_MAX
"""Maximum number of quota entities in an AlterClientQuotas request.

The response lists every entity, including those that were not altered.
"""

ENTITY_PARTS_MAX = 1 + max(len(ENTITY_TYPES), len(CLIENT_KEYS), len(ADDRESS_KEYS))
"""Maximum number of parts of a quota entity, and of its quotas, that are decoded.

A longer list must contain duplicates, which are rejected.

A longer list must contain duplicates, which are rejected.
"""


async def handle(
    services: Services, request: AlterClientQuotasRequest, context: RequestContext
) -> AlterClientQuotasResponse:
    if len(request.entries) > REQUEST_ENTITIES_MAX:
        raise Disconnect(f"AlterClientQuotas request with more than {REQUEST_ENTITIES_MAX} entities")
    alterations = [_decode_entry(entry) for entry in request.entries]
    outcomes = await alter_quotas(services.store, alterations, validate_only=request.validate_only)
    return AlterClientQuotasResponse(
        entries=[
            QuotaAlterationResult(
                entity=[QuotaAlterationEntity(entity_type=kind, entity_name=name) for kind, name in entity],
                **build_error_fields(error),
            )
            for entity, error in outcomes.items()
        ]
    )


def _decode_entry(entry: QuotaAlterationEntry) -> QuotaChangeRequest:
    return QuotaChangeRequest(
        tuple((each.entity_type, each.entity_name) for each in entry.entity[:ENTITY_PARTS_MAX]),
        [
            QuotaValueChange(operation.key, None if operation.remove else operation.value)
            for operation in entry.ops[:ENTITY_PARTS_MAX]
        ],
    )
