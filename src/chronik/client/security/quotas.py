"""Client quotas: describe and alter the quotas of users, clients and IP addresses."""

from __future__ import annotations

from collections.abc import Mapping

from chronik.client.cluster import ClusterClient, raise_for_code
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

QuotaEntityNames = Mapping[str, str | None]
"""Entity names by type ("user", "client-id", "ip"); None names the default entity."""

_EXACT, _DEFAULT = 0, 1


def describe_quotas(
    cluster: ClusterClient, named: QuotaEntityNames
) -> list[tuple[dict[str, str | None], dict[str, float]]]:
    """Return the entities that match the names, each with its quotas by key. Raises KafkaError."""
    components = [
        QuotaComponent(entity_type=entity_type_name, match_type=_DEFAULT if name is None else _EXACT, match=name)
        for entity_type_name, name in named.items()
    ]
    request = DescribeClientQuotasRequest(components=components, strict=False)
    response = cluster.retry(lambda: cluster.any_broker().request(request, DescribeClientQuotasResponse))
    raise_for_code(response.error_code, "quotas not described", response.error_message)
    return [
        (
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in response.entries or []
    ]


def alter_quotas(cluster: ClusterClient, named: QuotaEntityNames, changes: Mapping[str, float | None]) -> None:
    """Set quotas of an entity, and remove those whose value is None. Raises KafkaError."""
    entry = QuotaAlterationEntry(
        entity=[
            AlteredEntity(entity_type=entity_type_name, entity_name=name) for entity_type_name, name in named.items()
        ],
        ops=[QuotaOperation(key=key, value=value or 0.0, remove=value is None) for key, value in changes.items()],
    )
    request = AlterClientQuotasRequest(entries=[entry], validate_only=False)
    response = cluster.retry(lambda: cluster.any_broker().request(request, AlterClientQuotasResponse))
    for result in response.entries:
        raise_for_code(result.error_code, "quotas not altered", result.error_message)
