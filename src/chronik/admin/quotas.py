"""Quotas from request to command: each entity's stands or falls alone, and all that stand are one command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from chronik.limits import QUOTA_ALTERATIONS_MAX
from chronik.metadata.commands.quotas import AlterQuotas, QuotaAlteration
from chronik.metadata.security.quotas import Entity
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.security.quotas.entities import Change, checked_changes, checked_entity

Named = tuple[tuple[str, str | None], ...]
"""Pairs of a kind and a name, as they were asked for: None is the default."""


class WantedQuotas(NamedTuple):
    entity: Named
    changes: Sequence[Change]


async def alter_quotas(
    store: MetadataStore, wanted: Sequence[WantedQuotas], *, validate_only: bool
) -> dict[Named, KafkaError | None]:
    """Returns what became of each, by entity, in their order. Raises KafkaError for all of them."""
    if len(wanted) > QUOTA_ALTERATIONS_MAX:
        told = f"quotas of more than {QUOTA_ALTERATIONS_MAX} entities in one request: send them in several"
        raise KafkaError(ErrorCode.INVALID_REQUEST, told)
    outcomes: dict[Named, KafkaError | None] = {}
    alterations: dict[Named, QuotaAlteration] = {}
    seen: dict[Entity, Named] = {}
    for each in wanted:
        try:
            entity = checked_entity(each.entity)
            if entity in seen:
                twice = KafkaError(ErrorCode.INVALID_REQUEST, "An entity is named twice: none of it is changed")
                if alterations.pop(seen[entity], None) is not None:
                    outcomes[seen[entity]] = twice  # its kinds may have come in another order, and be answered apart
                raise twice
            seen[entity] = each.entity
            alterations[each.entity] = _alteration(entity, each.changes)
            outcomes[each.entity] = None
        except KafkaError as error:
            outcomes[each.entity] = error
    if alterations and not validate_only:
        outcomes |= await _proposed(store, alterations)
    return outcomes


async def _proposed(store: MetadataStore, alterations: dict[Named, QuotaAlteration]) -> dict[Named, KafkaError]:
    """Returns what failed."""
    names = list(alterations)
    try:
        result = await store.propose(AlterQuotas(tuple(alterations.values())))
    except KafkaError as error:
        return dict.fromkeys(names, error.without_frames())
    return {names[each.item]: KafkaError(each.code, each.message) for each in result.failures}


def _alteration(entity: Entity, changes: Sequence[Change]) -> QuotaAlteration:
    by_key = checked_changes(entity, changes)
    return QuotaAlteration(
        entity,
        {key: float(value) for key, value in by_key.items() if value is not None},
        tuple(key for key, value in by_key.items() if value is None),
    )
