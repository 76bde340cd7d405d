"""Helpers that set and describe client quotas."""

from __future__ import annotations

from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntity,
    QuotaAlterationEntry,
    QuotaOperation,
)
from chronik.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    QuotaComponent,
)
from tests.raw import RawClient

EXACT, DEFAULT, SPECIFIED = range(3)
EntityParts = tuple[tuple[str, str | None], ...]


def quota_alteration(entity: dict[str, str | None], **values: float | None) -> QuotaAlterationEntry:
    """Return an alteration of the entity's quotas; a value of None removes the quota."""
    return QuotaAlterationEntry(
        entity=[AlteredEntity(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in entity.items()],
        ops=[QuotaOperation(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
    )


def alter_quotas(
    client: RawClient, *entries: QuotaAlterationEntry, validate_only: bool = False, version: int = 1
) -> list[tuple[EntityParts, ErrorCode]]:
    request = AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    answer = client.request(request, version, AlterClientQuotasResponse)
    return [
        (tuple((part.entity_type, part.entity_name) for part in each.entity), ErrorCode(each.error_code))
        for each in answer.entries
    ]


def set_quota(client: RawClient, entity: dict[str, str | None], **values: float | None) -> None:
    ((_, code),) = alter_quotas(client, quota_alteration(entity, **values))
    assert code is ErrorCode.NONE


def describe_quotas(
    client: RawClient, *components: QuotaComponent, strict: bool = False, version: int = 1
) -> dict[EntityParts, dict[str, float]]:
    request = DescribeClientQuotasRequest(components=list(components), strict=strict)
    answer = client.request(request, version, DescribeClientQuotasResponse)
    assert answer.error_code == ErrorCode.NONE
    return {
        tuple((part.entity_type, part.entity_name) for part in each.entity): {
            value.key: value.value for value in each.values
        }
        for each in answer.entries or []
    }


def exact_component(kind: str, name: str | None) -> QuotaComponent:
    return QuotaComponent(entity_type=kind, match_type=DEFAULT if name is None else EXACT, match=name)


def any_component(kind: str) -> QuotaComponent:
    return QuotaComponent(entity_type=kind, match_type=SPECIFIED, match=None)
