"""Kafka's kafka-acls tool with a broker that has an authorizer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chronik.testing import Broker

from .kafka_tools import ToolFailed, run_tool

READ = ("--allow-principal", "User:alice", "--operation", "Read")


@pytest.fixture(scope="module")
def secured_bootstrap() -> Iterator[str]:
    with Broker(broker={"authorizer.class.name": "standard", "super.users": "User:ANONYMOUS"}) as broker:
        yield broker.bootstrap


def acls(bootstrap: str, *arguments: str) -> str:
    return run_tool("kafka-acls", bootstrap, *arguments)


def test_kafka_acls_adds_lists_and_removes_acls(secured_bootstrap: str) -> None:
    prefixed = ("--topic", "orders-", "--resource-pattern-type", "prefixed")
    output = acls(secured_bootstrap, "--add", *READ, *prefixed)
    assert "ResourcePattern(resourceType=TOPIC, name=orders-, patternType=PREFIXED)" in output
    acls(secured_bootstrap, "--add", "--deny-principal", "User:bob", "--deny-host", "10.0.0.1", "--topic", "orders-1")
    acls(
        secured_bootstrap,
        "--add",
        "--allow-principal",
        "User:carol",
        "--producer",
        "--topic",
        "t",
        "--transactional-id",
        "x",
    )
    listed = acls(secured_bootstrap, "--list")
    assert "(principal=User:alice, host=*, operation=READ, permissionType=ALLOW)" in listed
    assert "(principal=User:bob, host=10.0.0.1, operation=ALL, permissionType=DENY)" in listed
    assert "resourceType=TRANSACTIONAL_ID, name=x, patternType=LITERAL" in listed
    matching = acls(secured_bootstrap, "--list", "--topic", "orders-1", "--resource-pattern-type", "match")
    assert "User:alice" in matching
    assert "User:bob" in matching
    assert "User:carol" not in matching
    acls(secured_bootstrap, "--remove", "--force", *READ, *prefixed)
    assert "User:alice" not in acls(secured_bootstrap, "--list")
    acls(secured_bootstrap, "--remove", "--force", "--topic", "orders-1", "--topic", "t", "--transactional-id", "x")
    assert "principal=" not in acls(secured_bootstrap, "--list")


def test_kafka_acls_fails_without_authorizer(bootstrap: str) -> None:
    with pytest.raises(ToolFailed, match="No Authorizer is configured on the broker"):
        acls(bootstrap, "--list")
