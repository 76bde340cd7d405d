"""`chronik acls` as a subprocess, with the options of kafka-acls.sh."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chronik.testing import Broker
from tests.cli.command_line import CommandResult, run_chronik

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker_with_authorizer() -> Iterator[Broker]:
    with Broker(broker={"authorizer.class.name": "standard", "super.users": "User:ANONYMOUS"}) as broker:
        yield broker


def acls(broker: Broker, *arguments: str) -> CommandResult:
    return run_chronik("acls", *arguments, bootstrap=broker.bootstrap)


def test_acls_are_added_listed_and_removed(broker_with_authorizer: Broker) -> None:
    read = ("--allow-principal", "User:x", "--operation", "Read", "--topic", "t")
    added = acls(broker_with_authorizer, "add", *read, "--operation", "describe_configs", "--prefixed", "--json").json
    common = {"resource_type": "Topic", "resource_name": "t", "principal": "User:x", "host": "*", "permission": "Allow"}
    assert added == [
        {**common, "pattern_type": "Prefixed", "operation": operation} for operation in ("Read", "DescribeConfigs")
    ]
    denied = ("--deny-principal", "User:y", "--deny-host", "10.0.0.1", "--cluster", "--group", "g")
    assert len(acls(broker_with_authorizer, "add", *denied).lines) == 3
    assert len(acls(broker_with_authorizer, "list", "--json").json) == 4
    assert len(acls(broker_with_authorizer, "list", "--principal", "User:y", "--json").json) == 2
    assert (
        len(acls(broker_with_authorizer, "list", "--topic", "topic", "--resource-pattern-type", "match", "--json").json)
        == 2
    )
    assert acls(broker_with_authorizer, "list", "--topic", "topic", "--json").json == []
    assert acls(broker_with_authorizer, "remove", *read, "--json").json == [], (
        "the ACLs are prefixed, the filter is literal"
    )
    assert len(acls(broker_with_authorizer, "remove", *read, "--prefixed", "--json").json) == 1
    assert len(acls(broker_with_authorizer, "remove", "--topic", "t", "--prefixed", "--json").json) == 1
    assert len(acls(broker_with_authorizer, "remove", *denied, "--json").json) == 2
    assert acls(broker_with_authorizer, "list", "--json").json == []


def test_acls_on_subjects_are_listed_with_all_others(broker_with_authorizer: Broker) -> None:
    read = ("--allow-principal", "User:x", "--operation", "Read", "--topic", "orders", "--subject", "orders-value")
    acls(broker_with_authorizer, "add", *read)
    listed = acls(broker_with_authorizer, "list", "--json").json
    assert [(each["resource_type"], each["resource_name"]) for each in listed] == [
        ("Topic", "orders"),
        ("Subject", "orders-value"),
    ]
    assert len(acls(broker_with_authorizer, "list", "--subject", "orders-value", "--json").json) == 1
    assert len(acls(broker_with_authorizer, "remove", *read, "--json").json) == 2
    assert acls(broker_with_authorizer, "list", "--json").json == []


def test_producer_and_consumer_options_create_the_acls_of_kafka_acls(broker_with_authorizer: Broker) -> None:
    common = ("--allow-principal", "User:x", "--topic", "t", "--prefixed")
    producer = ("--producer", "--transactional-id", "tx", "--idempotent")
    consumer = ("--consumer", "--group", "g")
    added = acls(broker_with_authorizer, "add", *common, *producer, *consumer, "--json").json
    assert {(each["principal"], each["host"], each["permission"]) for each in added} == {("User:x", "*", "Allow")}
    assert [
        (each["resource_type"], each["resource_name"], each["pattern_type"], each["operation"]) for each in added
    ] == [
        ("Topic", "t", "Prefixed", "Write"),
        ("Topic", "t", "Prefixed", "Describe"),
        ("Topic", "t", "Prefixed", "Create"),
        ("TransactionalId", "tx", "Prefixed", "Write"),
        ("TransactionalId", "tx", "Prefixed", "Describe"),
        ("Cluster", "kafka-cluster", "Literal", "IdempotentWrite"),
        ("Topic", "t", "Prefixed", "Read"),
        ("Group", "g", "Prefixed", "Read"),
    ]
    assert len(acls(broker_with_authorizer, "remove", *common, *consumer, "--json").json) == 3
    left = acls(broker_with_authorizer, "remove", *common, *producer, "--json").json
    assert "Describe" not in {each["operation"] for each in left if each["resource_type"] == "Topic"}
    assert acls(broker_with_authorizer, "list", "--json").json == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("add", "--producer", "--topic", "t"), "--producer and --consumer require --allow-principal"),
        (("add", "--producer", "--allow-principal", "User:x"), "require --topic"),
        (("add", "--consumer", "--topic", "t", "--allow-principal", "User:x"), "--consumer requires --group"),
        (("add", "--idempotent", "--topic", "t", "--allow-principal", "User:x"), "--idempotent requires --producer"),
        (
            ("add", "--producer", "--topic", "t", "--allow-principal", "User:x", "--operation", "Read"),
            "cannot be combined with --operation",
        ),
        (
            ("add", "--producer", "--topic", "t", "--allow-principal", "User:x", "--group", "g"),
            "--producer creates no ACLs for --group",
        ),
        (("add", "--allow-principal", "User:x"), "no resource given"),
        (("add", "--topic", "t"), "no principal given: use --allow-principal User:NAME"),
        (("add", "--topic", "t", "--allow-principal", "x"), "expected TYPE:NAME, such as User:alice"),
        (
            ("add", "--topic", "t", "--allow-principal", "User:x", "--operation", "Peruse"),
            "unknown operation 'Peruse'",
        ),
        (("add", "--topic", "t", "--allow-host", "h"), "--allow-host requires --allow-principal"),
        (("add", "--topic", "", "--allow-principal", "User:x"), "Invalid empty resource name"),
    ],
)
def test_invalid_acl_options_print_one_line_error(
    broker_with_authorizer: Broker, arguments: tuple[str, ...], expected: str
) -> None:
    outcome = acls(broker_with_authorizer, *arguments)
    assert outcome.code == 1
    assert expected in outcome.err
    assert len(outcome.err.splitlines()) == 1


def test_acls_list_fails_without_authorizer(chronik_broker: Broker) -> None:
    outcome = acls(chronik_broker, "list")
    assert outcome.code == 1
    assert "No Authorizer is configured on the broker" in outcome.err
