"""DescribeClientQuotas (API key 48): returns the quotas of users, client ids and IP addresses that match a filter.

Replication quotas are topic and broker configs, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping

from chronik.api.shared.context import RequestContext, Services
from chronik.metadata.records import DEFAULT_ENTITY, IP_ENTITY, Entity, QuotaValues
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribedQuotaEntity,
    DescribedQuotaEntry,
    QuotaComponent,
    QuotaValue,
)
from chronik.security.quotas.entities import ENTITY_TYPES

MATCH_EXACT, MATCH_DEFAULT, MATCH_SPECIFIED = range(3)
ANY = None

QuotaFilter = Mapping[str, str | None]
"""A filter for client quotas: entity names by entity type; ANY matches every entity of the type."""


def handle(
    services: Services, request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    try:
        wanted = _decode_filter(request.components)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message)
    quotas = services.image.quotas
    entries = [
        _encode_entry(entity, quotas[entity])
        for entity in sorted(quotas)
        if _matches_quota_filter(entity, wanted, strict=request.strict)
    ]
    return DescribeClientQuotasResponse(entries=entries)


def _matches_quota_filter(entity: Entity, wanted: QuotaFilter, *, strict: bool) -> bool:
    if strict and len(entity) != len(wanted):
        return False
    named = dict(entity)
    return all(kind in named and name in (ANY, named[kind]) for kind, name in wanted.items())


def _encode_entry(entity: Entity, values: QuotaValues) -> DescribedQuotaEntry:
    return DescribedQuotaEntry(
        entity=[
            DescribedQuotaEntity(entity_type=kind, entity_name=None if name == DEFAULT_ENTITY else name)
            for kind, name in entity
        ],
        values=[QuotaValue(key=key, value=value) for key, value in values.items()],
    )


def _decode_filter(components: list[QuotaComponent]) -> QuotaFilter:
    """Decode the filter of a DescribeClientQuotas request, and raise KafkaError if the filter is invalid."""
    wanted: dict[str, str | None] = {}
    for component in components:
        kind = component.entity_type
        if kind == "":
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kind in wanted:
            text = f"Entity type {kind} cannot appear more than once in the filter."
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        if kind not in ENTITY_TYPES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        wanted[kind] = _decode_entity_name(component)
    if IP_ENTITY in wanted and len(wanted) > 1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "An IP address cannot be combined with other entity types in a filter"
        )
    return wanted


def _decode_entity_name(component: QuotaComponent) -> str | None:
    if component.match_type not in (MATCH_EXACT, MATCH_DEFAULT, MATCH_SPECIFIED):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown match type {component.match_type}")
    if (component.match is None) == (component.match_type == MATCH_EXACT):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A name must be specified for an exact match, and only for it")
    return DEFAULT_ENTITY if component.match_type == MATCH_DEFAULT else component.match
