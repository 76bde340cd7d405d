"""`chronik acls`, as users run it, in the words of Kafka's own tool."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chronik.testing import Broker
from tests.cli.running import Outcome, chronik

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def guarded() -> Iterator[Broker]:
    with Broker(broker={"authorizer.class.name": "standard", "super.users": "User:ANONYMOUS"}) as broker:
        yield broker


def acls(broker: Broker, *arguments: str) -> Outcome:
    return chronik("acls", *arguments, bootstrap=broker.bootstrap)


def test_acls_are_added_listed_and_removed(guarded: Broker) -> None:
    read = ("--allow-principal", "User:x", "--operation", "Read", "--topic", "t")
    added = acls(guarded, "add", *read, "--operation", "describe_configs", "--prefixed", "--json").json
    common = {"resource_type": "Topic", "resource_name": "t", "principal": "User:x", "host": "*", "permission": "Allow"}
    assert added == [
        {**common, "pattern_type": "Prefixed", "operation": operation} for operation in ("Read", "DescribeConfigs")
    ]
    denied = ("--deny-principal", "User:y", "--deny-host", "10.0.0.1", "--cluster", "--group", "g")
    assert len(acls(guarded, "add", *denied).lines) == 3
    assert len(acls(guarded, "list", "--json").json) == 4
    assert len(acls(guarded, "list", "--principal", "User:y", "--json").json) == 2
    assert len(acls(guarded, "list", "--topic", "topic", "--resource-pattern-type", "match", "--json").json) == 2
    assert acls(guarded, "list", "--topic", "topic", "--json").json == []
    assert acls(guarded, "remove", *read, "--json").json == [], "they are prefixed, and this is not"
    assert len(acls(guarded, "remove", *read, "--prefixed", "--json").json) == 1
    assert len(acls(guarded, "remove", "--topic", "t", "--prefixed", "--json").json) == 1
    assert len(acls(guarded, "remove", *denied, "--json").json) == 2
    assert acls(guarded, "list", "--json").json == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("add", "--allow-principal", "User:x"), "name at least one resource"),
        (("add", "--topic", "t"), "say who: --allow-principal User:NAME"),
        (("add", "--topic", "t", "--allow-principal", "x"), "expected TYPE:NAME, such as User:alice"),
        (
            ("add", "--topic", "t", "--allow-principal", "User:x", "--operation", "Peruse"),
            "there is no operation 'Peruse'",
        ),
        (("add", "--topic", "t", "--allow-host", "h"), "a host goes with a principal"),
        (("add", "--topic", "", "--allow-principal", "User:x"), "Invalid empty resource name"),
    ],
)
def test_what_makes_no_sense_is_one_line(guarded: Broker, arguments: tuple[str, ...], told: str) -> None:
    outcome = acls(guarded, *arguments)
    assert outcome.code == 1
    assert told in outcome.err
    assert len(outcome.err.splitlines()) == 1


def test_a_broker_without_an_authorizer_says_so(chronik_broker: Broker) -> None:
    outcome = acls(chronik_broker, "list")
    assert outcome.code == 1
    assert "No Authorizer is configured on the broker" in outcome.err
