"""Alteration of client quotas: each entity succeeds or fails separately, and all valid alterations are one command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from chronik.limits import QUOTA_ALTERATIONS_MAX
from chronik.metadata.commands.security import AlterQuotas, QuotaAlteration
from chronik.metadata.records import Entity
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.security.quotas.entities import QuotaValueChange, validate_changes, validate_entity

RequestedEntity = tuple[tuple[str, str | None], ...]
"""A quota entity in a request, as pairs of entity type and entity name; the name None is the default entity."""


class QuotaChangeRequest(NamedTuple):
    """A request to set or remove quotas of one entity, such as a user or a client id."""

    entity: RequestedEntity
    changes: Sequence[QuotaValueChange]


async def alter_quotas(
    store: MetadataStore, wanted: Sequence[QuotaChangeRequest], *, validate_only: bool
) -> dict[RequestedEntity, KafkaError | None]:
    """Set and remove quotas of users, client ids and IPs, and return an error or None for each entity.

    Raises:
        KafkaError: The request has too many entities.
    """
    if len(wanted) > QUOTA_ALTERATIONS_MAX:
        message = f"the request alters quotas of more than {QUOTA_ALTERATIONS_MAX} entities: split it"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    outcomes: dict[RequestedEntity, KafkaError | None] = {}
    alterations: dict[RequestedEntity, QuotaAlteration] = {}
    seen: dict[Entity, RequestedEntity] = {}
    for each in wanted:
        try:
            entity = validate_entity(each.entity)
            if entity in seen:
                duplicate_error = KafkaError(
                    ErrorCode.INVALID_REQUEST, "An entity occurs twice in the request; none of its quotas were changed"
                )
                if alterations.pop(seen[entity], None) is not None:
                    outcomes[seen[entity]] = duplicate_error  # the same entity with its types in another order
                raise duplicate_error
            seen[entity] = each.entity
            alterations[each.entity] = _build_quota_alteration(entity, each.changes)
            outcomes[each.entity] = None
        except KafkaError as error:
            outcomes[each.entity] = error
    if alterations and not validate_only:
        outcomes |= await _propose_quota_alterations(store, alterations)
    return outcomes


async def _propose_quota_alterations(
    store: MetadataStore, alterations: dict[RequestedEntity, QuotaAlteration]
) -> dict[RequestedEntity, KafkaError]:
    """Propose a metadata command with all quota changes, and return the errors by quota entity."""
    names = list(alterations)
    try:
        result = await store.propose(AlterQuotas(tuple(alterations.values())))
    except KafkaError as error:
        return dict.fromkeys(names, error.without_traceback())
    return {names[each.item]: KafkaError(each.code, each.message) for each in result.failures}


def _build_quota_alteration(entity: Entity, changes: Sequence[QuotaValueChange]) -> QuotaAlteration:
    by_key = validate_changes(entity, changes)
    return QuotaAlteration(
        entity,
        {key: float(value) for key, value in by_key.items() if value is not None},
        tuple(key for key, value in by_key.items() if value is None),
    )
