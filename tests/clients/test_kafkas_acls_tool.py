"""Kafka's own kafka-acls, unmodified, against a broker that has an authorizer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chronik.testing import Broker

from .kafka_tools import ToolFailed, run_tool

READ = ("--allow-principal", "User:alice", "--operation", "Read")


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    with Broker(broker={"authorizer.class.name": "standard", "super.users": "User:ANONYMOUS"}) as broker:
        yield broker.bootstrap


def acls(bootstrap: str, *arguments: str) -> str:
    return run_tool("kafka-acls", bootstrap, *arguments)


def test_acls_are_added_listed_and_removed(guarded: str) -> None:
    prefixed = ("--topic", "orders-", "--resource-pattern-type", "prefixed")
    told = acls(guarded, "--add", *READ, *prefixed)
    assert "ResourcePattern(resourceType=TOPIC, name=orders-, patternType=PREFIXED)" in told
    acls(guarded, "--add", "--deny-principal", "User:bob", "--deny-host", "10.0.0.1", "--topic", "orders-1")
    acls(guarded, "--add", "--allow-principal", "User:carol", "--producer", "--topic", "t", "--transactional-id", "x")
    listed = acls(guarded, "--list")
    assert "(principal=User:alice, host=*, operation=READ, permissionType=ALLOW)" in listed
    assert "(principal=User:bob, host=10.0.0.1, operation=ALL, permissionType=DENY)" in listed
    assert "resourceType=TRANSACTIONAL_ID, name=x, patternType=LITERAL" in listed
    matching = acls(guarded, "--list", "--topic", "orders-1", "--resource-pattern-type", "match")
    assert "User:alice" in matching
    assert "User:bob" in matching
    assert "User:carol" not in matching
    acls(guarded, "--remove", "--force", *READ, *prefixed)
    assert "User:alice" not in acls(guarded, "--list")
    acls(guarded, "--remove", "--force", "--topic", "orders-1", "--topic", "t", "--transactional-id", "x")
    assert "principal=" not in acls(guarded, "--list")


def test_a_broker_without_an_authorizer_says_so(bootstrap: str) -> None:
    with pytest.raises(ToolFailed, match="No Authorizer is configured on the broker"):
        acls(bootstrap, "--list")
