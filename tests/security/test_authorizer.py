from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronik.limits import CACHED_DECISION_NAME_CHARACTERS_MAX, CACHED_DECISIONS_MAX
from chronik.metadata.delta import Delta, RecordChange
from chronik.metadata.records import Acl
from chronik.principals import Principal
from chronik.protocol.permissions import (
    TOPIC_OPERATION_BITS,
    AclOperation,
    AclResourceType,
    encode_operations_as_bit_field,
)
from chronik.security.authorizer import Authorizer, create_authorizer
from tests.run_size import sized
from tests.security.naive_authorizer import is_allowed, is_allowed_on_any

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
HOST = "10.0.0.1"
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3

NAMES = st.text("ab", min_size=1, max_size=4)
ACLS = st.builds(
    Acl,
    st.sampled_from([AclResourceType.TOPIC, AclResourceType.GROUP]),
    NAMES | st.sampled_from(["*", "hard", "hardcode"]),  # Kafka checks a resource of this name first
    st.sampled_from([LITERAL, PREFIXED]),
    st.sampled_from(["User:alice", "User:bob", "User:*", "Group:alice"]),
    st.sampled_from(["*", HOST, "10.0.0.2"]),
    st.sampled_from(AclOperation),
    st.sampled_from([ALLOW, ALLOW, DENY]),
)
QUESTIONS = st.tuples(
    st.sampled_from([ALICE, BOB, Principal("Group", "alice")]),
    st.sampled_from([HOST, "10.0.0.2", "10.0.0.3"]),
    st.sampled_from(AclOperation),
    st.sampled_from([AclResourceType.TOPIC, AclResourceType.GROUP]),
    NAMES,
)


def topic_acl(
    name: str = "t",
    operation: AclOperation = AclOperation.READ,
    *,
    principal: str = "User:alice",
    host: str = "*",
    pattern: int = LITERAL,
    permission: int = ALLOW,
) -> Acl:
    return Acl(AclResourceType.TOPIC, name, pattern, principal, host, operation, permission)


def with_acls(*acls: Acl, **options: Any) -> Authorizer:
    authorizer = Authorizer(**options)
    add(authorizer, *acls)
    return authorizer


def add(authorizer: Authorizer, *acls: Acl) -> None:
    authorizer.apply_delta(Delta(1, acls=tuple(RecordChange(None, acl) for acl in acls)))


def remove(authorizer: Authorizer, *acls: Acl) -> None:
    authorizer.apply_delta(Delta(1, acls=tuple(RecordChange(acl, None) for acl in acls)))


def is_authorized(
    authorizer: Authorizer, operation: AclOperation, name: str = "t", principal: Principal = ALICE, host: str = HOST
) -> bool:
    return authorizer.is_authorized(principal, host, operation, AclResourceType.TOPIC, name)


@settings(max_examples=sized(100, 2000), deadline=None)
@given(st.lists(ACLS, max_size=12, unique=True), st.lists(QUESTIONS, max_size=8), st.booleans(), st.data())
def test_authorizer_agrees_with_naive_rules(
    acls: list[Acl], checks: list[Any], everyone: bool, data: st.DataObject
) -> None:
    authorizer = with_acls(*acls, everyone_if_no_acl=everyone)
    removed = data.draw(st.lists(st.sampled_from(acls), unique=True)) if acls else []
    for present in (acls, [acl for acl in acls if acl not in removed]):
        for check in checks:
            assert authorizer.is_authorized(*check) is is_allowed(present, *check, everyone_if_no_acl=everyone)
        remove(authorizer, *removed)
        removed = []


@settings(max_examples=sized(100, 2000), deadline=None)
@given(st.lists(ACLS, max_size=12, unique=True), QUESTIONS)
def test_authorization_for_any_resource_agrees_with_naive_rules(acls: list[Acl], check: Any) -> None:
    principal, host, operation, kind, _ = check
    assert with_acls(*acls).is_authorized_for_any(principal, host, operation, kind) is is_allowed_on_any(
        acls, principal, host, operation, kind
    )


@settings(max_examples=sized(100, 2000), deadline=None)
@given(st.lists(ACLS, max_size=12, unique=True), QUESTIONS, st.booleans())
def test_authorization_for_all_resources_implies_authorization_for_each(
    acls: list[Acl], check: Any, everyone: bool
) -> None:
    principal, host, operation, kind, _ = check
    authorizer = with_acls(*acls, everyone_if_no_acl=everyone)
    if authorizer.is_authorized_for_all(principal, host, operation, kind):
        names = {acl.name for acl in acls} | {f"{acl.name}x" for acl in acls} | {"other"}
        assert all(authorizer.is_authorized(principal, host, operation, kind, name) for name in names)


def test_authorization_for_all_resources_needs_acl_with_wildcard_and_no_deny() -> None:
    def can_describe_all_topics(*acls: Acl, **config: Any) -> bool:
        authorizer = with_acls(*acls, **config)
        return authorizer.is_authorized_for_all(ALICE, HOST, AclOperation.DESCRIBE, AclResourceType.TOPIC)

    everywhere = topic_acl("*")
    assert can_describe_all_topics(everywhere)
    assert not can_describe_all_topics()
    assert not can_describe_all_topics(topic_acl("t", pattern=PREFIXED))
    assert not can_describe_all_topics(everywhere, topic_acl("t", AclOperation.DESCRIBE, permission=DENY))
    assert can_describe_all_topics(everywhere, topic_acl("t", AclOperation.WRITE, permission=DENY))
    assert can_describe_all_topics(topic_acl("*", permission=DENY), super_users=[ALICE])
    assert can_describe_all_topics(everyone_if_no_acl=True)
    assert not can_describe_all_topics(topic_acl("t", principal="User:bob"), everyone_if_no_acl=True)


def test_authorization_for_all_resources_follows_removed_acls() -> None:
    authorizer, denied = with_acls(topic_acl("*")), topic_acl("t", permission=DENY)
    request = ALICE, HOST, AclOperation.READ, AclResourceType.TOPIC
    for old, new in ((None, denied), (denied, None)):
        remove(authorizer, *([old] if old else []))
        add(authorizer, *([new] if new else []))
        assert authorizer.is_authorized_for_all(*request) is (new is None)


def test_resource_without_acl_is_denied_unless_configured_otherwise() -> None:
    assert not is_authorized(Authorizer(), AclOperation.READ)
    assert is_authorized(Authorizer(everyone_if_no_acl=True), AclOperation.READ)
    other = with_acls(topic_acl(principal="User:bob"), everyone_if_no_acl=True)
    assert not is_authorized(other, AclOperation.READ), "an ACL applies to the topic, but not to the principal"


def test_super_user_is_authorized_despite_deny_acls() -> None:
    authorizer = with_acls(topic_acl("*", AclOperation.ALL, principal="User:*", permission=DENY), super_users=[ALICE])
    assert is_authorized(authorizer, AclOperation.DELETE)
    assert not is_authorized(authorizer, AclOperation.DELETE, principal=BOB)
    assert authorizer.is_authorized_for_any(ALICE, HOST, AclOperation.WRITE, AclResourceType.TOPIC)


@pytest.mark.parametrize("operation", [AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER])
def test_allow_acl_implies_describe_but_deny_acl_does_not(operation: AclOperation) -> None:
    assert is_authorized(with_acls(topic_acl(operation=operation)), AclOperation.DESCRIBE)
    denied = with_acls(topic_acl(operation=operation, permission=DENY), topic_acl(operation=AclOperation.DESCRIBE))
    assert is_authorized(denied, AclOperation.DESCRIBE)
    assert not is_authorized(denied, operation)


def test_alter_configs_implies_describe_configs() -> None:
    authorizer = with_acls(topic_acl(operation=AclOperation.ALTER_CONFIGS))
    assert is_authorized(authorizer, AclOperation.DESCRIBE_CONFIGS)
    assert not is_authorized(authorizer, AclOperation.DESCRIBE)


@pytest.mark.parametrize("allowed", [topic_acl("*"), topic_acl("t", pattern=PREFIXED), topic_acl("topic")])
@pytest.mark.parametrize(
    "denied",
    [
        topic_acl("*", permission=DENY),
        topic_acl("to", pattern=PREFIXED, permission=DENY),
        topic_acl("topic", permission=DENY),
    ],
)
def test_deny_acl_overrides_any_allow_acl(allowed: Acl, denied: Acl) -> None:
    authorizer = with_acls(allowed)
    assert is_authorized(authorizer, AclOperation.READ, "topic")
    add(authorizer, denied)
    assert not is_authorized(authorizer, AclOperation.READ, "topic")
    remove(authorizer, denied)
    assert is_authorized(authorizer, AclOperation.READ, "topic"), "cached decisions are dropped when ACLs change"


def test_acl_host_accepts_uncompressed_ipv6_address() -> None:
    authorizer = with_acls(topic_acl(host="0:0:0:0:0:0:0:1"))
    assert is_authorized(authorizer, AclOperation.READ, host="::1")
    assert not is_authorized(authorizer, AclOperation.READ, host="::2")


def test_idempotent_producer_needs_write_permission_on_some_topic() -> None:
    def can_write_some_topic(*acls: Acl) -> bool:
        return with_acls(*acls).is_authorized_for_any(ALICE, HOST, AclOperation.WRITE, AclResourceType.TOPIC)

    write, read = topic_acl(operation=AclOperation.WRITE), topic_acl()
    prefixed = topic_acl("te", AclOperation.WRITE, pattern=PREFIXED)
    everywhere = topic_acl("*", AclOperation.WRITE)
    assert [can_write_some_topic(acl) for acl in (write, read, prefixed, everywhere)] == [True, False, True, True]
    deny: dict[str, Any] = {"permission": DENY, "operation": AclOperation.WRITE}
    assert not can_write_some_topic(write, topic_acl("*", **deny))
    assert not can_write_some_topic(write, topic_acl("t", **deny))
    assert not can_write_some_topic(prefixed, topic_acl("t", pattern=PREFIXED, **deny))
    assert not can_write_some_topic(prefixed, topic_acl("te", pattern=PREFIXED, **deny))
    assert can_write_some_topic(prefixed, topic_acl("te", **deny))
    assert can_write_some_topic(everywhere, topic_acl("t", pattern=PREFIXED, **deny))
    prefixed_star, checked_name = topic_acl("*", pattern=PREFIXED, **deny), topic_acl("hardcode", **deny)
    assert can_write_some_topic(everywhere, checked_name, prefixed_star), "the prefix * does not match every name"
    assert not can_write_some_topic(topic_acl("*", AclOperation.WRITE, pattern=PREFIXED), prefixed_star)


def test_authorized_operations_are_returned_as_bit_field() -> None:
    authorizer = with_acls(topic_acl())
    told = authorizer.authorized_operations(ALICE, HOST, AclResourceType.TOPIC, "t")
    assert told == encode_operations_as_bit_field([AclOperation.READ, AclOperation.DESCRIBE])
    assert (
        with_acls(topic_acl(operation=AclOperation.ALL)).authorized_operations(ALICE, HOST, AclResourceType.TOPIC, "t")
        == TOPIC_OPERATION_BITS
    )


def test_decision_cache_is_limited_by_size_and_name_length() -> None:
    authorizer = with_acls(topic_acl())
    for number in range(CACHED_DECISIONS_MAX):
        is_authorized(authorizer, AclOperation.READ, str(number))
    assert len(authorizer._decisions) == CACHED_DECISIONS_MAX
    is_authorized(authorizer, AclOperation.READ, "one more")
    assert len(authorizer._decisions) == 1
    is_authorized(authorizer, AclOperation.READ, "n" * CACHED_DECISION_NAME_CHARACTERS_MAX)
    is_authorized(authorizer, AclOperation.READ, "n" * (CACHED_DECISION_NAME_CHARACTERS_MAX + 1))
    assert len(authorizer._decisions) == 2


def test_watchers_are_woken_only_when_acls_change() -> None:
    class Waiting:
        woken = 0

        def wake(self) -> None:
            self.woken += 1

    authorizer, waiting = Authorizer(), Waiting()
    authorizer.delayed_fetches[waiting] = None
    authorizer.apply_delta(Delta(1, offsets=("g",)))
    assert waiting.woken == 0
    add(authorizer, topic_acl())
    assert waiting.woken == 1


def test_authorizer_is_created_from_broker_configs() -> None:
    configs = {"authorizer.class.name": "", "super.users": "", "allow.everyone.if.no.acl.found": "false"}
    assert create_authorizer(configs.__getitem__) is None
    configs |= {"authorizer.class.name": "standard", "super.users": " User:alice;User:CN=a, O=b ; "}
    authorizer = create_authorizer(configs.__getitem__)
    assert authorizer is not None
    assert is_authorized(authorizer, AclOperation.READ)
    assert is_authorized(authorizer, AclOperation.READ, principal=Principal("User", "CN=a, O=b"))
    assert not is_authorized(authorizer, AclOperation.READ, principal=BOB)
    configs["allow.everyone.if.no.acl.found"] = "true"
    everyone = create_authorizer(configs.__getitem__)
    assert everyone is not None
    assert is_authorized(everyone, AclOperation.READ, principal=BOB)


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
    if permission == DENY:  # otherwise, all other principals would be denied, too
        add(authorizer, topic_acl(principal="User:*"))
    is_allowed = authorizer.is_authorized(ALICE, client_host, AclOperation.READ, AclResourceType.TOPIC, "t")
    assert is_allowed == (expected == (permission == ALLOW))
    if permission == ALLOW:
        assert (
            authorizer.is_authorized_for_any(ALICE, client_host, AclOperation.READ, AclResourceType.TOPIC) == expected
        )
