"""How much users, clients and addresses may ask for."""

from __future__ import annotations

from typing import Final

from chronik.client.security.quotas import alter_quotas, describe_quotas
from chronik.console.rest.call import Call, wrong
from chronik.console.rest.doing.shared import page_of
from chronik.console.rest.shapes.common import Done, Page, Paging
from chronik.console.rest.shapes.security import Quota, QuotaChange, QuotaEntity

KINDS: Final = {"user": "user", "client_id": "client-id", "ip": "ip"}
"""Kafka's names of what has quotas, by ours."""


def list_all(call: Call, asked: Paging) -> Page[Quota]:
    found = sorted(describe_quotas(call.cluster, {}), key=lambda each: sorted((k, v or "") for k, v in each[0].items()))
    return page_of([Quota(_entity(entity), values) for entity, values in found], asked.after, asked.limit)


def _entity(named: dict[str, str | None]) -> QuotaEntity:
    return QuotaEntity(**{ours: named[kafkas] or "" for ours, kafkas in KINDS.items() if kafkas in named})


def put(call: Call, asked: QuotaChange) -> Done:
    given = {kafkas: getattr(asked.entity, ours) for ours, kafkas in KINDS.items()}
    named = {kind: name or None for kind, name in given.items() if name is not None}
    if not named:
        raise wrong("entity: expected a user, a client_id or an ip; an empty name is the default")
    alter_quotas(call.cluster, named, asked.values)
    return Done()
