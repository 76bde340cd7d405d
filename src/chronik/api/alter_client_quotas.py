"""AlterClientQuotas: sets and removes quotas of users, clients and addresses, or only checks that it could."""

from __future__ import annotations

from chronik.admin.quotas import WantedQuotas, alter_quotas
from chronik.api.shared.context import Context, Services
from chronik.exchange import Disconnect
from chronik.limits import QUOTA_ALTERATIONS_MAX
from chronik.protocol.failures import told
from chronik.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AnsweredEntity,
    QuotaAlterationEntry,
    QuotaAlterationResult,
)
from chronik.security.quotas.entities import ADDRESS_KEYS, CLIENT_KEYS, KINDS, Change

ENTITIES_ANSWERED_MAX = 10 * QUOTA_ALTERATIONS_MAX
"""An answer names each, also when all are refused for being too many."""

PARTS_MAX = 1 + max(len(KINDS), len(CLIENT_KEYS), len(ADDRESS_KEYS))
"""Whoever gives more kinds or keys than there are gives some of them twice, and is refused for those."""


async def handle(services: Services, request: AlterClientQuotasRequest, context: Context) -> AlterClientQuotasResponse:
    if len(request.entries) > ENTITIES_ANSWERED_MAX:
        raise Disconnect(f"quotas of more than {ENTITIES_ANSWERED_MAX} entities")
    wanted = [_wanted(entry) for entry in request.entries]
    outcomes = await alter_quotas(services.store, wanted, validate_only=request.validate_only)
    return AlterClientQuotasResponse(
        entries=[
            QuotaAlterationResult(
                entity=[AnsweredEntity(entity_type=kind, entity_name=name) for kind, name in entity], **told(error)
            )
            for entity, error in outcomes.items()
        ]
    )


def _wanted(entry: QuotaAlterationEntry) -> WantedQuotas:
    return WantedQuotas(
        tuple((each.entity_type, each.entity_name) for each in entry.entity[:PARTS_MAX]),
        [Change(operation.key, None if operation.remove else operation.value) for operation in entry.ops[:PARTS_MAX]],
    )
