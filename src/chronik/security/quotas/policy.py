"""Precedence of client quotas: of all quotas set for a key, the most specific one applies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from chronik.limits import TRACKED_QUOTA_ENTITIES_MAX
from chronik.metadata.records import CLIENT_ID_ENTITY, DEFAULT_ENTITY, IP_ENTITY, USER_ENTITY, Entity, QuotaValues
from chronik.security.quotas.entities import CLIENT_KEYS, CONNECTION_CREATION_RATE, to_canonical_address


class RateQuota(NamedTuple):
    """A rate limit and the entity that shares it: a user, a client id, or a client id of a user."""

    rate: float
    user: str | None
    client_id: str | None

    @property
    def bucket_key(self) -> tuple[str | None, str | None]:
        return self.user, self.client_id


class ClientQuotas(NamedTuple):
    """The quotas that apply to one client; None for a quota that is not set."""

    produce: RateQuota | None
    fetch: RateQuota | None
    request: RateQuota | None
    mutation: RateQuota | None


NO_QUOTAS: Final = ClientQuotas(None, None, None, None)


class QuotaPolicy:
    """The configured client quotas, and a cache of the quotas that apply to each client."""

    def __init__(self, quotas: Mapping[Entity, QuotaValues]) -> None:
        self._by_entity: dict[str | None, dict[str | None, QuotaValues]] = {}
        self._addresses: dict[str, float] = {}
        self._default_address: float | None = None
        self._cache: dict[tuple[str, str], ClientQuotas] = {}
        for entity, values in quotas.items():
            named = dict(entity)
            if IP_ENTITY in named:
                self._add_address(named[IP_ENTITY], values)
            else:
                self._by_entity.setdefault(named.get(USER_ENTITY), {})[named.get(CLIENT_ID_ENTITY)] = values
        self.limits_clients = bool(self._by_entity)

    def _add_address(self, name: str, values: QuotaValues) -> None:
        rate = values.get(CONNECTION_CREATION_RATE)
        if rate is None:
            return
        if name == DEFAULT_ENTITY:
            self._default_address = rate
        else:
            self._addresses[to_canonical_address(name) or name] = rate

    def get_client_quotas(self, user: str, client_id: str) -> ClientQuotas:
        """Return the quotas that apply to a client."""
        known = self._cache.get((user, client_id))
        if known is None:
            if len(self._cache) >= TRACKED_QUOTA_ENTITIES_MAX:  # client ids are chosen by clients
                self._cache.clear()
            known = self._cache[user, client_id] = ClientQuotas(
                *(self._look_up_quota(key, user, client_id) for key in CLIENT_KEYS)
            )
        return known

    def connection_rate(self, address: str) -> float | None:
        """Return the limit on new connections per second of an IP address, or None."""
        return self._addresses.get(address, self._default_address)

    def _look_up_quota(self, key: str, user: str, client_id: str) -> RateQuota | None:
        """Return the quota for one quota key, following Kafka's order of precedence of entities (eight levels)."""
        for user_level in (user, DEFAULT_ENTITY):
            for client_level in (client_id, DEFAULT_ENTITY, None):
                rate = self._rate(key, user_level, client_level)
                if rate is not None:
                    return RateQuota(rate, user, None if client_level is None else client_id)
        for client_level in (client_id, DEFAULT_ENTITY):
            rate = self._rate(key, None, client_level)
            if rate is not None:
                return RateQuota(rate, None, client_id)
        return None

    def _rate(self, key: str, user: str | None, client_id: str | None) -> float | None:
        values = self._by_entity.get(user, {}).get(client_id)
        return None if values is None else values.get(key)
