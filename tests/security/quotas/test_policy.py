"""Quota precedence as in Kafka, and validation of quota entities and values."""

from __future__ import annotations

import pytest

from chronik.limits import QUOTA_NAME_CHARACTERS_MAX, TRACKED_QUOTA_ENTITIES_MAX
from chronik.metadata.records import Entity, QuotaValues, normalize_quota_entity
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.security.quotas.entities import QuotaValueChange, to_canonical_address, validate_changes, validate_entity
from chronik.security.quotas.policy import NO_QUOTAS, QuotaPolicy, RateQuota

KEY = "producer_byte_rate"

ORDER: list[tuple[Entity, tuple[str | None, str | None]]] = [
    (normalize_quota_entity([("user", "alice"), ("client-id", "c")]), ("alice", "c")),
    (normalize_quota_entity([("user", "alice"), ("client-id", "")]), ("alice", "c")),
    (normalize_quota_entity([("user", "alice")]), ("alice", None)),
    (normalize_quota_entity([("user", ""), ("client-id", "c")]), ("alice", "c")),
    (normalize_quota_entity([("user", ""), ("client-id", "")]), ("alice", "c")),
    (normalize_quota_entity([("user", "")]), ("alice", None)),
    (normalize_quota_entity([("client-id", "c")]), (None, "c")),
    (normalize_quota_entity([("client-id", "")]), (None, "c")),
]


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_most_specific_of_eight_quota_levels_applies(first: int) -> None:
    quotas: dict[Entity, QuotaValues] = {
        entity: {KEY: float(position + 1)} for position, (entity, _) in enumerate(ORDER)
    }
    quotas = dict(list(quotas.items())[first:])
    assert QuotaPolicy(quotas).get_client_quotas("alice", "c").produce == RateQuota(first + 1.0, *ORDER[first][1])


def test_quota_precedence_applies_per_key() -> None:
    found = QuotaPolicy(
        {
            normalize_quota_entity([("user", "alice")]): {"consumer_byte_rate": 5.0},
            normalize_quota_entity([("client-id", "")]): {KEY: 7.0, "consumer_byte_rate": 8.0},
        }
    ).get_client_quotas("alice", "c")
    assert found.fetch == RateQuota(5.0, "alice", None)
    assert found.produce == RateQuota(7.0, None, "c")
    assert found.request is found.mutation is None


def test_other_clients_have_no_quotas() -> None:
    policy = QuotaPolicy({normalize_quota_entity([("user", "alice"), ("client-id", "c")]): {KEY: 1.0}})
    assert policy.get_client_quotas("alice", "d") == NO_QUOTAS
    assert policy.get_client_quotas("bob", "c") == NO_QUOTAS


def test_quota_cache_size_is_limited() -> None:
    policy = QuotaPolicy({normalize_quota_entity([("client-id", "")]): {KEY: 1.0}})
    for number in range(TRACKED_QUOTA_ENTITIES_MAX + 1):
        policy.get_client_quotas("alice", str(number))
    assert len(policy._cache) <= TRACKED_QUOTA_ENTITIES_MAX


def test_connection_rate_is_specific_or_default() -> None:
    policy = QuotaPolicy(
        {
            (("ip", "::ffff:10.0.0.1"),): {"connection_creation_rate": 3.0},
            (("ip", ""),): {"connection_creation_rate": 9.0},
        }
    )
    assert not policy.limits_clients
    assert policy.connection_rate("10.0.0.1") == 3.0
    assert policy.connection_rate("10.0.0.2") == 9.0
    assert QuotaPolicy({}).connection_rate("10.0.0.2") is None


def test_addresses_are_compared_in_canonical_form() -> None:
    assert to_canonical_address("::ffff:10.0.0.1") == to_canonical_address("10.0.0.1") == "10.0.0.1"
    assert to_canonical_address("FE80:0::1%eth0") == "fe80::1"
    assert to_canonical_address("a.example") is None


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([], "Invalid empty client quota entity"),
        ([("user", "a"), ("user", "b")], "duplicate entity entry user"),
        ([("host", "a")], "Unhandled client quota entity type: host"),
        ([("user", "")], "Empty user not supported"),
        ([("ip", "10.0.0.1"), ("user", None)], "IP entity should not be combined"),
        ([("ip", "a.example")], "a.example is not a valid IP"),
        ([("user", "u" * (QUOTA_NAME_CHARACTERS_MAX + 1))], "more than 1000 characters"),
    ],
)
def test_invalid_quota_entity_is_rejected(pairs: list[tuple[str, str | None]], message: str) -> None:
    with pytest.raises(KafkaError, match=message) as raised:
        validate_entity(pairs)
    assert raised.value.code is ErrorCode.INVALID_REQUEST


def test_quota_entity_is_independent_of_order() -> None:
    assert validate_entity([("user", None), ("client-id", "c")]) == (("client-id", "c"), ("user", ""))
    longest = "u" * QUOTA_NAME_CHARACTERS_MAX
    assert validate_entity([("user", longest)]) == (("user", longest),)


@pytest.mark.parametrize(
    ("kind", "key", "value", "message"),
    [
        ("user", "connection_creation_rate", 1.0, "Invalid configuration key connection_creation_rate"),
        ("ip", KEY, 1.0, "Invalid configuration key producer_byte_rate"),
        ("user", KEY, 0.0, "must be greater than 0"),
        ("user", KEY, -1.0, "must be greater than 0"),
        ("user", KEY, float("nan"), "must be greater than 0"),
        ("user", "request_percentage", float("inf"), "must be greater than 0"),
        ("user", KEY, 1.5, "cannot be a fractional value"),
        ("user", KEY, 1e19, "too large for a LONG"),
        ("ip", "connection_creation_rate", 2.0**31, "too large for an INT"),
    ],
)
def test_invalid_quota_value_is_rejected(kind: str, key: str, value: float, message: str) -> None:
    with pytest.raises(KafkaError, match=message):
        validate_changes(((kind, ""),), [QuotaValueChange(key, value)])


def test_duplicate_quota_key_is_rejected() -> None:
    changes = [
        QuotaValueChange(KEY, 1.0),
        QuotaValueChange("request_percentage", 0.5),
        QuotaValueChange("controller_mutation_rate", None),
    ]
    assert validate_changes((("user", ""),), changes) == {
        KEY: 1.0,
        "request_percentage": 0.5,
        "controller_mutation_rate": None,
    }
    with pytest.raises(KafkaError, match="Duplicate quota key"):
        validate_changes((("user", ""),), [QuotaValueChange(KEY, 1.0), QuotaValueChange(KEY, None)])
