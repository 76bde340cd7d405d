"""Operations on client quotas."""

from __future__ import annotations

from typing import Final

from chronik.client.security import alter_quotas, describe_quotas
from chronik.console.rest.context import OperationContext, build_bad_request_error
from chronik.console.rest.models.common import Done, Page, Paging
from chronik.console.rest.models.security import Quota, QuotaChange, QuotaEntity
from chronik.console.rest.operations.shared import paginate

ENTITY_TYPES: Final = {"user": "user", "client_id": "client-id", "ip": "ip"}
"""Names of client quota entity types: the admin API's names mapped to Kafka's names."""


def list_all(context: OperationContext, params: Paging) -> Page[Quota]:
    """List all client quotas."""
    found = sorted(
        describe_quotas(context.cluster, {}), key=lambda each: sorted((k, v or "") for k, v in each[0].items())
    )
    return paginate([Quota(_to_entity(entity), values) for entity, values in found], params.after, params.limit)


def _to_entity(names: dict[str, str | None]) -> QuotaEntity:
    return QuotaEntity(
        **{field: names[entity_type] or "" for field, entity_type in ENTITY_TYPES.items() if entity_type in names}
    )


def put(context: OperationContext, params: QuotaChange) -> Done:
    """Set or remove quotas of an entity."""
    given = {entity_type: getattr(params.entity, field) for field, entity_type in ENTITY_TYPES.items()}
    names = {kind: name or None for kind, name in given.items() if name is not None}
    if not names:
        raise build_bad_request_error(
            "entity: expected a user, a client_id or an ip; an empty name means the default entity"
        )
    alter_quotas(context.cluster, names, params.values)
    return Done()
