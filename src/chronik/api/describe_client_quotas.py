"""DescribeClientQuotas: no quotas are set. Those of replication are configs of topics and brokers.

Missing: AlterClientQuotas, which is not among the APIs of this node, since nothing here would keep to a quota.
"""

from __future__ import annotations

from chronik.api.shared.context import Context, Services
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    QuotaComponent,
)

ENTITY_TYPES = ("user", "client-id", "ip")
ADDRESS = "ip"

EXACT, DEFAULT, SPECIFIED = range(3)


def handle(services: Services, request: DescribeClientQuotasRequest, context: Context) -> DescribeClientQuotasResponse:
    try:
        _check(request.components)
    except KafkaError as error:
        return _refused(error)
    return DescribeClientQuotasResponse(entries=[])


def _refused(error: KafkaError) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message)


def _check(components: list[QuotaComponent]) -> None:
    """A question that makes no sense is refused, even though the answer to every other is the same."""
    seen: set[str] = set()
    for component in components:
        kind = component.entity_type
        if kind == "":
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kind in seen:
            told = f"Entity type {kind} cannot appear more than once in the filter."
            raise KafkaError(ErrorCode.INVALID_REQUEST, told)
        if kind not in ENTITY_TYPES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        _check_match(component)
        seen.add(kind)
    if ADDRESS in seen and len(seen) > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Addresses have quotas of their own, apart from users and clients")


def _check_match(component: QuotaComponent) -> None:
    if component.match_type not in (EXACT, DEFAULT, SPECIFIED):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown match type {component.match_type}")
    if (component.match is None) == (component.match_type == EXACT):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A name goes with an exact match, and with no other")
