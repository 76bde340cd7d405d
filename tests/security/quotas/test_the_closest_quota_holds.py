"""Kafka's order of precedence, and what may be set at all."""

from __future__ import annotations

import pytest

from chronik.limits import QUOTA_BUCKETS_MAX, QUOTA_NAME_CHARACTERS_MAX
from chronik.metadata.security.quotas import Entity, Values, entity_of
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.security.quotas.entities import Change, checked_changes, checked_entity, plain_address
from chronik.security.quotas.policy import NONE, Policy, Quota

KEY = "producer_byte_rate"

ORDER: list[tuple[Entity, tuple[str | None, str | None]]] = [
    (entity_of([("user", "alice"), ("client-id", "c")]), ("alice", "c")),
    (entity_of([("user", "alice"), ("client-id", "")]), ("alice", "c")),
    (entity_of([("user", "alice")]), ("alice", None)),
    (entity_of([("user", ""), ("client-id", "c")]), ("alice", "c")),
    (entity_of([("user", ""), ("client-id", "")]), ("alice", "c")),
    (entity_of([("user", "")]), ("alice", None)),
    (entity_of([("client-id", "c")]), (None, "c")),
    (entity_of([("client-id", "")]), (None, "c")),
]


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_the_order_of_eight(first: int) -> None:
    quotas: dict[Entity, Values] = {entity: {KEY: float(place + 1)} for place, (entity, _) in enumerate(ORDER)}
    quotas = dict(list(quotas.items())[first:])
    assert Policy(quotas).of("alice", "c").produce == Quota(first + 1.0, *ORDER[first][1])


def test_each_key_is_looked_for_by_itself() -> None:
    found = Policy(
        {
            entity_of([("user", "alice")]): {"consumer_byte_rate": 5.0},
            entity_of([("client-id", "")]): {KEY: 7.0, "consumer_byte_rate": 8.0},
        }
    ).of("alice", "c")
    assert found.fetch == Quota(5.0, "alice", None)
    assert found.produce == Quota(7.0, None, "c")
    assert found.request is found.mutation is None


def test_others_have_none() -> None:
    policy = Policy({entity_of([("user", "alice"), ("client-id", "c")]): {KEY: 1.0}})
    assert policy.of("alice", "d") == NONE
    assert policy.of("bob", "c") == NONE


def test_names_that_clients_make_up_are_not_all_remembered() -> None:
    policy = Policy({entity_of([("client-id", "")]): {KEY: 1.0}})
    for number in range(QUOTA_BUCKETS_MAX + 1):
        policy.of("alice", str(number))
    assert len(policy._cache) <= QUOTA_BUCKETS_MAX


def test_addresses_have_a_rate_of_their_own_or_the_default() -> None:
    policy = Policy(
        {
            (("ip", "::ffff:10.0.0.1"),): {"connection_creation_rate": 3.0},
            (("ip", ""),): {"connection_creation_rate": 9.0},
        }
    )
    assert not policy.limits_clients
    assert policy.connection_rate("10.0.0.1") == 3.0
    assert policy.connection_rate("10.0.0.2") == 9.0
    assert Policy({}).connection_rate("10.0.0.2") is None


def test_an_address_is_compared_however_it_is_written() -> None:
    assert plain_address("::ffff:10.0.0.1") == plain_address("10.0.0.1") == "10.0.0.1"
    assert plain_address("FE80:0::1%eth0") == "fe80::1"
    assert plain_address("a.example") is None


@pytest.mark.parametrize(
    ("pairs", "told"),
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
def test_what_is_no_entity_is_refused(pairs: list[tuple[str, str | None]], told: str) -> None:
    with pytest.raises(KafkaError, match=told) as refused:
        checked_entity(pairs)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_an_entity_is_the_same_in_any_order() -> None:
    assert checked_entity([("user", None), ("client-id", "c")]) == (("client-id", "c"), ("user", ""))
    longest = "u" * QUOTA_NAME_CHARACTERS_MAX
    assert checked_entity([("user", longest)]) == (("user", longest),)


@pytest.mark.parametrize(
    ("kind", "key", "value", "told"),
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
def test_what_is_no_quota_is_refused(kind: str, key: str, value: float, told: str) -> None:
    with pytest.raises(KafkaError, match=told):
        checked_changes(((kind, ""),), [Change(key, value)])


def test_a_key_is_changed_once() -> None:
    changes = [Change(KEY, 1.0), Change("request_percentage", 0.5), Change("controller_mutation_rate", None)]
    assert checked_changes((("user", ""),), changes) == {
        KEY: 1.0,
        "request_percentage": 0.5,
        "controller_mutation_rate": None,
    }
    with pytest.raises(KafkaError, match="Duplicate quota key"):
        checked_changes((("user", ""),), [Change(KEY, 1.0), Change(KEY, None)])
