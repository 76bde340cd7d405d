"""DescribeClientQuotas: the quotas of users, clients and addresses. Those of replication are configs of topics and
brokers."""

from __future__ import annotations

from collections.abc import Mapping

from chronik.api.shared.context import Context, Services
from chronik.metadata.security.quotas import ADDRESS, DEFAULT, Entity, Values
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    QuotaComponent,
    QuotaEntity,
    QuotaEntry,
    QuotaValue,
)
from chronik.security.quotas.entities import KINDS

MATCH_EXACT, MATCH_DEFAULT, MATCH_SPECIFIED = range(3)
ANY = None

Filter = Mapping[str, str | None]
"""The name that is asked for, by kind; ANY for all of that kind."""


def handle(services: Services, request: DescribeClientQuotasRequest, context: Context) -> DescribeClientQuotasResponse:
    try:
        wanted = _filter(request.components)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message)
    quotas = services.image.quotas
    entries = [
        _entry(entity, quotas[entity]) for entity in sorted(quotas) if _matches(entity, wanted, strict=request.strict)
    ]
    return DescribeClientQuotasResponse(entries=entries)


def _matches(entity: Entity, wanted: Filter, *, strict: bool) -> bool:
    if strict and len(entity) != len(wanted):
        return False
    named = dict(entity)
    return all(kind in named and name in (ANY, named[kind]) for kind, name in wanted.items())


def _entry(entity: Entity, values: Values) -> QuotaEntry:
    return QuotaEntry(
        entity=[QuotaEntity(entity_type=kind, entity_name=None if name == DEFAULT else name) for kind, name in entity],
        values=[QuotaValue(key=key, value=value) for key, value in values.items()],
    )


def _filter(components: list[QuotaComponent]) -> Filter:
    """Raises KafkaError for a question that makes no sense."""
    wanted: dict[str, str | None] = {}
    for component in components:
        kind = component.entity_type
        if kind == "":
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kind in wanted:
            told = f"Entity type {kind} cannot appear more than once in the filter."
            raise KafkaError(ErrorCode.INVALID_REQUEST, told)
        if kind not in KINDS:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        wanted[kind] = _wanted(component)
    if ADDRESS in wanted and len(wanted) > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Addresses have quotas of their own, apart from users and clients")
    return wanted


def _wanted(component: QuotaComponent) -> str | None:
    if component.match_type not in (MATCH_EXACT, MATCH_DEFAULT, MATCH_SPECIFIED):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown match type {component.match_type}")
    if (component.match is None) == (component.match_type == MATCH_EXACT):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A name goes with an exact match, and with no other")
    return DEFAULT if component.match_type == MATCH_DEFAULT else component.match
