from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronik.limits import DECISION_NAME_CHARACTERS_MAX, DECISIONS_KEPT_MAX
from chronik.metadata.delta import Change, Delta
from chronik.metadata.records import Acl
from chronik.principals import Principal
from chronik.protocol.permissions import ALL_ON_TOPIC, Operation, ResourceType, bits_of
from chronik.security.authorizer import Authorizer, authorizer_of
from tests.long import count
from tests.security.naive import is_allowed, is_one_allowed

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
HOST = "10.0.0.1"
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3

NAMES = st.text("ab", min_size=1, max_size=4)
ACLS = st.builds(
    Acl,
    st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
    NAMES | st.sampled_from(["*", "hard", "hardcode"]),  # Kafka asks for a resource of this name first
    st.sampled_from([LITERAL, PREFIXED]),
    st.sampled_from(["User:alice", "User:bob", "User:*", "Group:alice"]),
    st.sampled_from(["*", HOST, "10.0.0.2"]),
    st.sampled_from(Operation),
    st.sampled_from([ALLOW, ALLOW, DENY]),
)
QUESTIONS = st.tuples(
    st.sampled_from([ALICE, BOB, Principal("Group", "alice")]),
    st.sampled_from([HOST, "10.0.0.2", "10.0.0.3"]),
    st.sampled_from(Operation),
    st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
    NAMES,
)


def topic_acl(
    name: str = "t",
    operation: Operation = Operation.READ,
    *,
    who: str = "User:alice",
    host: str = "*",
    pattern: int = LITERAL,
    permission: int = ALLOW,
) -> Acl:
    return Acl(ResourceType.TOPIC, name, pattern, who, host, operation, permission)


def with_acls(*acls: Acl, **how: Any) -> Authorizer:
    authorizer = Authorizer(**how)
    add(authorizer, *acls)
    return authorizer


def add(authorizer: Authorizer, *acls: Acl) -> None:
    authorizer.follow(Delta(1, acls=tuple(Change(None, acl) for acl in acls)))


def remove(authorizer: Authorizer, *acls: Acl) -> None:
    authorizer.follow(Delta(1, acls=tuple(Change(acl, None) for acl in acls)))


def may(
    authorizer: Authorizer, operation: Operation, name: str = "t", who: Principal = ALICE, host: str = HOST
) -> bool:
    return authorizer.allows(who, host, operation, ResourceType.TOPIC, name)


@settings(max_examples=count(100, 2000), deadline=None)
@given(st.lists(ACLS, max_size=12, unique=True), st.lists(QUESTIONS, max_size=8), st.booleans(), st.data())
def test_every_answer_is_that_of_the_plain_rules(
    acls: list[Acl], questions: list[Any], everyone: bool, data: st.DataObject
) -> None:
    authorizer = with_acls(*acls, everyone_if_no_acl=everyone)
    gone = data.draw(st.lists(st.sampled_from(acls), unique=True)) if acls else []
    for present in (acls, [acl for acl in acls if acl not in gone]):
        for question in questions:
            assert authorizer.allows(*question) is is_allowed(present, *question, everyone_if_no_acl=everyone)
        remove(authorizer, *gone)
        gone = []


@settings(max_examples=count(100, 2000), deadline=None)
@given(st.lists(ACLS, max_size=12, unique=True), QUESTIONS)
def test_who_may_write_some_topic_is_decided_by_the_plain_rules(acls: list[Acl], question: Any) -> None:
    who, host, operation, kind, _ = question
    assert with_acls(*acls).allows_one(who, host, operation, kind) is is_one_allowed(acls, who, host, operation, kind)


def test_without_an_acl_nothing_is_allowed_unless_everyone_may() -> None:
    assert not may(Authorizer(), Operation.READ)
    assert may(Authorizer(everyone_if_no_acl=True), Operation.READ)
    other = with_acls(topic_acl(who="User:bob"), everyone_if_no_acl=True)
    assert not may(other, Operation.READ), "there is an ACL about the topic, which is not for her"


def test_a_super_user_may_do_everything_whatever_is_denied() -> None:
    authorizer = with_acls(topic_acl("*", Operation.ALL, who="User:*", permission=DENY), super_users=[ALICE])
    assert may(authorizer, Operation.DELETE)
    assert not may(authorizer, Operation.DELETE, who=BOB)
    assert authorizer.allows_one(ALICE, HOST, Operation.WRITE, ResourceType.TOPIC)


@pytest.mark.parametrize("operation", [Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER])
def test_what_is_allowed_implies_that_it_may_be_described_and_what_is_denied_does_not(operation: Operation) -> None:
    assert may(with_acls(topic_acl(operation=operation)), Operation.DESCRIBE)
    denied = with_acls(topic_acl(operation=operation, permission=DENY), topic_acl(operation=Operation.DESCRIBE))
    assert may(denied, Operation.DESCRIBE)
    assert not may(denied, operation)


def test_changing_configs_implies_describing_them() -> None:
    authorizer = with_acls(topic_acl(operation=Operation.ALTER_CONFIGS))
    assert may(authorizer, Operation.DESCRIBE_CONFIGS)
    assert not may(authorizer, Operation.DESCRIBE)


@pytest.mark.parametrize("allowed", [topic_acl("*"), topic_acl("t", pattern=PREFIXED), topic_acl("topic")])
@pytest.mark.parametrize(
    "denied",
    [
        topic_acl("*", permission=DENY),
        topic_acl("to", pattern=PREFIXED, permission=DENY),
        topic_acl("topic", permission=DENY),
    ],
)
def test_what_is_denied_stays_denied_however_it_is_allowed(allowed: Acl, denied: Acl) -> None:
    authorizer = with_acls(allowed)
    assert may(authorizer, Operation.READ, "topic")
    add(authorizer, denied)
    assert not may(authorizer, Operation.READ, "topic")
    remove(authorizer, denied)
    assert may(authorizer, Operation.READ, "topic"), "what was decided is forgotten when ACLs change"


def test_an_address_of_ipv6_may_be_written_as_java_writes_it() -> None:
    authorizer = with_acls(topic_acl(host="0:0:0:0:0:0:0:1"))
    assert may(authorizer, Operation.READ, host="::1")
    assert not may(authorizer, Operation.READ, host="::2")


def test_an_idempotent_producer_needs_a_topic_that_it_may_write_to() -> None:
    def may_write_some(*acls: Acl) -> bool:
        return with_acls(*acls).allows_one(ALICE, HOST, Operation.WRITE, ResourceType.TOPIC)

    write, read = topic_acl(operation=Operation.WRITE), topic_acl()
    prefixed = topic_acl("te", Operation.WRITE, pattern=PREFIXED)
    everywhere = topic_acl("*", Operation.WRITE)
    assert [may_write_some(acl) for acl in (write, read, prefixed, everywhere)] == [True, False, True, True]
    deny: dict[str, Any] = {"permission": DENY, "operation": Operation.WRITE}
    assert not may_write_some(write, topic_acl("*", **deny))
    assert not may_write_some(write, topic_acl("t", **deny))
    assert not may_write_some(prefixed, topic_acl("t", pattern=PREFIXED, **deny))
    assert not may_write_some(prefixed, topic_acl("te", pattern=PREFIXED, **deny))
    assert may_write_some(prefixed, topic_acl("te", **deny))
    assert may_write_some(everywhere, topic_acl("t", pattern=PREFIXED, **deny))
    of_stars, the_asked_for = topic_acl("*", pattern=PREFIXED, **deny), topic_acl("hardcode", **deny)
    assert may_write_some(everywhere, the_asked_for, of_stars), "what begins with a star is not everything"
    assert not may_write_some(topic_acl("*", Operation.WRITE, pattern=PREFIXED), of_stars)


def test_operations_are_told_as_bits() -> None:
    authorizer = with_acls(topic_acl())
    told = authorizer.operations(ALICE, HOST, ResourceType.TOPIC, "t")
    assert told == bits_of([Operation.READ, Operation.DESCRIBE])
    assert (
        with_acls(topic_acl(operation=Operation.ALL)).operations(ALICE, HOST, ResourceType.TOPIC, "t") == ALL_ON_TOPIC
    )


def test_decisions_are_kept_up_to_their_number_and_for_names_that_may_be_ones() -> None:
    authorizer = with_acls(topic_acl())
    for number in range(DECISIONS_KEPT_MAX):
        may(authorizer, Operation.READ, str(number))
    assert len(authorizer._decisions) == DECISIONS_KEPT_MAX
    may(authorizer, Operation.READ, "one more")
    assert len(authorizer._decisions) == 1
    may(authorizer, Operation.READ, "n" * DECISION_NAME_CHARACTERS_MAX)
    may(authorizer, Operation.READ, "n" * (DECISION_NAME_CHARACTERS_MAX + 1))
    assert len(authorizer._decisions) == 2


def test_those_who_wait_are_woken_when_acls_change_and_only_then() -> None:
    class Waiting:
        woken = 0

        def wake(self) -> None:
            self.woken += 1

    authorizer, waiting = Authorizer(), Waiting()
    authorizer.watchers[waiting] = None
    authorizer.follow(Delta(1, offsets=("g",)))
    assert waiting.woken == 0
    add(authorizer, topic_acl())
    assert waiting.woken == 1


def test_an_authorizer_is_made_of_a_brokers_configs() -> None:
    configs = {"authorizer.class.name": "", "super.users": "", "allow.everyone.if.no.acl.found": "false"}
    assert authorizer_of(configs.__getitem__) is None
    configs |= {"authorizer.class.name": "standard", "super.users": " User:alice;User:CN=a, O=b ; "}
    authorizer = authorizer_of(configs.__getitem__)
    assert authorizer is not None
    assert may(authorizer, Operation.READ)
    assert may(authorizer, Operation.READ, who=Principal("User", "CN=a, O=b"))
    assert not may(authorizer, Operation.READ, who=BOB)
    configs["allow.everyone.if.no.acl.found"] = "true"
    everyone = authorizer_of(configs.__getitem__)
    assert everyone is not None
    assert may(everyone, Operation.READ, who=BOB)


@pytest.mark.parametrize(
    ("acl_host", "client_host", "expected"),
    [
        ("10.0.0.1", "::ffff:10.0.0.1", True),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("::ffff:a00:1", "::ffff:10.0.0.1", True),
        ("2001:0db8:0:0:0:0:0:1", "2001:db8::1", True),
        ("10.0.0.1", "::ffff:10.0.0.2", False),
        ("::1", "::ffff:0.0.0.1", False),
    ],
)
@pytest.mark.parametrize("permission", [ALLOW, DENY])
def test_acl_hosts_match_ipv4_mapped_addresses(
    acl_host: str, client_host: str, expected: bool, permission: int
) -> None:
    authorizer = with_acls(topic_acl(host=acl_host, permission=permission))
    if permission == DENY:  # without it, all others would be denied, too
        add(authorizer, topic_acl(who="User:*"))
    is_allowed = authorizer.allows(ALICE, client_host, Operation.READ, ResourceType.TOPIC, "t")
    assert is_allowed == (expected == (permission == ALLOW))
    if permission == ALLOW:
        assert authorizer.allows_one(ALICE, client_host, Operation.READ, ResourceType.TOPIC) == expected
