"""AlterClientQuotas and DescribeClientQuotas."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chronik.api.alter_client_quotas import REQUEST_ENTITIES_MAX
from chronik.limits import QUOTA_ALTERATIONS_MAX
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from chronik.testing import Broker
from chronik.testing.plugin import BrokerFactory
from tests.api.quota_requests import (
    alter_quotas,
    any_component,
    describe_quotas,
    exact_component,
    quota_alteration,
    set_quota,
)
from tests.raw import RawClient


@pytest.fixture
def own(chronik_broker_factory: BrokerFactory) -> Broker:
    return chronik_broker_factory()


@pytest.fixture
def operator(own: Broker) -> Iterator[RawClient]:
    with RawClient(own.bootstrap) as client:
        yield client


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_survive_a_kill(own: Broker, operator: RawClient, version: int) -> None:
    done = alter_quotas(
        operator,
        quota_alteration({"user": "alice"}, producer_byte_rate=1e9, request_percentage=99.5),
        quota_alteration({"user": None, "client_id": "c"}, consumer_byte_rate=5e9),
        quota_alteration({"ip": "127.0.0.9"}, connection_creation_rate=7),
        version=version,
    )
    assert [code for _, code in done] == [ErrorCode.NONE] * 3
    own.kill()
    own.start()
    with RawClient(own.bootstrap) as client:
        assert describe_quotas(client, version=version) == {
            (("user", "alice"),): {"producer_byte_rate": 1e9, "request_percentage": 99.5},
            (("client-id", "c"), ("user", None)): {"consumer_byte_rate": 5e9},
            (("ip", "127.0.0.9"),): {"connection_creation_rate": 7.0},
        }


def test_each_entity_is_altered_independently(operator: RawClient) -> None:
    done = alter_quotas(
        operator,
        quota_alteration({"user": "alice"}, producer_byte_rate=1e9),
        quota_alteration({"user": "bob"}, producer_byte_rate=-1),
        quota_alteration({"user": "eve"}, connection_creation_rate=1),
        quota_alteration({"colour": "red"}, producer_byte_rate=1),
        quota_alteration({"user": "twice"}, producer_byte_rate=1e9),
        quota_alteration({"user": "twice"}, consumer_byte_rate=1e9),
    )
    refused = ErrorCode.INVALID_REQUEST
    assert done == [
        ((("user", "alice"),), ErrorCode.NONE),
        ((("user", "bob"),), refused),
        ((("user", "eve"),), refused),
        ((("colour", "red"),), refused),
        ((("user", "twice"),), refused),
    ]
    assert describe_quotas(operator) == {(("user", "alice"),): {"producer_byte_rate": 1e9}}


def test_duplicate_entity_in_another_order_is_rejected(operator: RawClient) -> None:
    done = alter_quotas(
        operator,
        quota_alteration({"user": "bob", "client_id": "c"}, producer_byte_rate=1),
        quota_alteration({"client_id": "c", "user": "bob"}, consumer_byte_rate=1),
    )
    assert [code for _, code in done] == [ErrorCode.INVALID_REQUEST] * 2
    assert describe_quotas(operator) == {}


def test_validate_only_does_not_alter_quotas(operator: RawClient) -> None:
    ((_, good), (_, bad)) = alter_quotas(
        operator,
        quota_alteration({"user": "a"}, producer_byte_rate=1),
        quota_alteration({"user": "b"}, producer_byte_rate=0),
        validate_only=True,
    )
    assert (good, bad) == (ErrorCode.NONE, ErrorCode.INVALID_REQUEST)
    assert describe_quotas(operator) == {}


def test_quotas_of_an_entity_are_removed_individually(operator: RawClient) -> None:
    set_quota(operator, {"user": "alice"}, producer_byte_rate=1e9, consumer_byte_rate=2e9)
    set_quota(operator, {"user": "alice"}, producer_byte_rate=None)
    assert describe_quotas(operator) == {(("user", "alice"),): {"consumer_byte_rate": 2e9}}
    set_quota(operator, {"user": "alice"}, consumer_byte_rate=None, request_percentage=None)
    assert describe_quotas(operator) == {}


def test_describe_client_quotas_applies_filters(operator: RawClient) -> None:
    entities: list[dict[str, str | None]] = [
        {"user": "a"},
        {"user": None},
        {"user": "a", "client_id": "c"},
        {"client_id": "c"},
        {"ip": None},
    ]
    for entity in entities:
        key = "connection_creation_rate" if "ip" in entity else "producer_byte_rate"
        set_quota(operator, entity, **{key: 1e6})
    a, both, client = (("user", "a"),), (("client-id", "c"), ("user", "a")), (("client-id", "c"),)
    default = (("user", None),)
    assert set(describe_quotas(operator, exact_component("user", "a"))) == {a, both}
    assert set(describe_quotas(operator, exact_component("user", "a"), strict=True)) == {a}
    assert set(describe_quotas(operator, exact_component("user", None))) == {default}
    assert set(describe_quotas(operator, any_component("user"))) == {a, both, default}
    assert set(describe_quotas(operator, any_component("user"), exact_component("client-id", "c"))) == {both}
    assert set(describe_quotas(operator, any_component("client-id"), strict=True)) == {client}
    assert set(describe_quotas(operator, any_component("ip"))) == {(("ip", None),)}


def test_alterations_per_request_are_limited(operator: RawClient) -> None:
    entries = [
        quota_alteration({"user": str(number)}, producer_byte_rate=1e9) for number in range(QUOTA_ALTERATIONS_MAX)
    ]
    assert {code for _, code in alter_quotas(operator, *entries)} == {ErrorCode.NONE}
    request = AlterClientQuotasRequest(entries=[*entries, quota_alteration({"user": "more"}, producer_byte_rate=1e9)])
    answer = operator.request(request, 1, AlterClientQuotasResponse)
    assert {each.error_code for each in answer.entries} == {ErrorCode.INVALID_REQUEST}
    assert len(describe_quotas(operator)) == QUOTA_ALTERATIONS_MAX
    operator.send(AlterClientQuotasRequest(entries=[quota_alteration({"user": "a"})] * (REQUEST_ENTITIES_MAX + 1)), 1)
    assert operator.wait_for_close()
