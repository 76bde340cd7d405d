"""Quota entities, keys and their validation, with the error messages of Kafka."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from chronik.limits import QUOTA_NAME_CHARACTERS_MAX
from chronik.metadata.records import (
    CLIENT_ID_ENTITY,
    DEFAULT_ENTITY,
    IP_ENTITY,
    USER_ENTITY,
    Entity,
    normalize_quota_entity,
)
from chronik.protocol.errors import ErrorCode, KafkaError

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

_INTEGER_LIMITS: Final = {
    PRODUCER_BYTE_RATE: (LONG_MAX, "a LONG"),
    CONSUMER_BYTE_RATE: (LONG_MAX, "a LONG"),
    CONNECTION_CREATION_RATE: (INT_MAX, "an INT"),
}
CLIENT_KEYS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
ADDRESS_KEYS: Final = (CONNECTION_CREATION_RATE,)
ENTITY_TYPES: Final = (USER_ENTITY, CLIENT_ID_ENTITY, IP_ENTITY)


class QuotaValueChange(NamedTuple):
    """A change of one quota. The value None removes the quota."""

    key: str
    value: float | None


def validate_entity(pairs: Sequence[tuple[str, str | None]]) -> Entity:
    """Return the quota entity for (type, name) pairs. The name None selects the default entity.

    Raises:
        KafkaError: The entity is invalid.
    """
    seen: dict[str, str] = {}
    for kind, name in pairs:
        if kind in seen:
            raise _build_invalid_request_error(f"Invalid client quota entity, duplicate entity entry {kind}")
        if kind not in ENTITY_TYPES:
            raise _build_invalid_request_error(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _build_invalid_request_error(f"Empty {kind} not supported")
        if name is not None and len(name) > QUOTA_NAME_CHARACTERS_MAX:
            raise _build_invalid_request_error(f"{kind} has more than {QUOTA_NAME_CHARACTERS_MAX} characters")
        seen[kind] = DEFAULT_ENTITY if name is None else name
    if not seen:
        raise _build_invalid_request_error("Invalid empty client quota entity")
    if IP_ENTITY in seen:
        if len(seen) > 1:
            raise _build_invalid_request_error(
                "Invalid quota entity combination, IP entity should not be combined with User or ClientId"
            )
        if seen[IP_ENTITY] and to_canonical_address(seen[IP_ENTITY]) is None:
            raise _build_invalid_request_error(f"{seen[IP_ENTITY]} is not a valid IP: host names are not resolved")
    return normalize_quota_entity(seen.items())


def validate_changes(entity: Entity, changes: Iterable[QuotaValueChange]) -> Mapping[str, float | None]:
    """Validate quota changes and return them by quota key.

    Raises:
        KafkaError: A key or value is invalid.
    """
    keys = ADDRESS_KEYS if entity[0][0] == IP_ENTITY else CLIENT_KEYS
    found: dict[str, float | None] = {}
    for key, value in changes:
        if key in found:
            raise _build_invalid_request_error(f"Duplicate quota key {key} not updating quota for this entity")
        if key not in keys:
            raise _build_invalid_request_error(f"Invalid configuration key {key}")
        if value is not None:
            _check_value(key, value)
        found[key] = value
    return found


def _check_value(key: str, value: float) -> None:
    if not value > 0 or not math.isfinite(value):
        raise _build_invalid_request_error(f"Quota {key} must be greater than 0")
    if key in _INTEGER_LIMITS:
        most, kind = _INTEGER_LIMITS[key]
        if value > most:
            raise _build_invalid_request_error(f"Proposed value for {key} is too large for {kind}.")
        if value % 1 > 1e-6:
            raise _build_invalid_request_error(f"{key} cannot be a fractional value.")


def to_canonical_address(text: str) -> str | None:
    """Return an IP address in canonical form (IPv4-mapped IPv6 as IPv4), or None if the text is not an address."""
    from ipaddress import IPv6Address, ip_address  # imported on use: a node without such quotas starts faster

    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)


def _build_invalid_request_error(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
