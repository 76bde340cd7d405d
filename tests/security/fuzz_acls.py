"""Fuzzing of ACLs and filters: the authorizer must agree with a naive implementation."""

from __future__ import annotations

import random
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any, Final, NamedTuple

from msgspec import structs

from chronik.metadata.delta import Delta, RecordChange
from chronik.metadata.records import Acl
from chronik.principals import Principal
from chronik.protocol.permissions import CLUSTER_NAME, AclOperation, AclResourceType
from chronik.security.acls import AclFilterPattern, find_acl_error
from chronik.security.authorizer import Authorizer
from tests.security.fuzz_framework import FuzzTarget
from tests.security.naive_authorizer import filter_matches, is_allowed, is_allowed_on_any

NAMES: Final = (
    "a",
    "ab",
    "abc",
    "b",
    "*",
    "**",
    "a*",
    "",
    "é",
    "\0",
    "a" * 1024,
    "a" * 1025,
    CLUSTER_NAME,
    "\U0001f600",
)
PRINCIPALS: Final = ("User:alice", "User:*", "User:", ":alice", "alice", "", "User:a:b", "Group:alice", "User:\n")
HOSTS: Final = ("*", "10.0.0.1", "::1", "0:0:0:0:0:0:0:1", "::ffff:10.0.0.1", "host", "", ":", "%", "1:2")
NUMBERS: Final = (-128, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 127)
PATTERNS: Final = (3, 3, 4, 4, 0, 1, 2, 5, -1)


def any_acl(rng: random.Random) -> Acl:
    """Return a random ACL, valid half of the time."""
    if rng.random() < 0.5:
        return Acl(
            rng.choice((AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.SUBJECT)),
            rng.choice(("a", "ab", "abc", "b", "*", "é")),
            rng.choice((3, 4)),
            rng.choice(("User:alice", "User:*", "User:a:b", "Group:alice")),
            rng.choice(("*", "10.0.0.1", "0:0:0:0:0:0:0:1", "host")),
            rng.choice(list(AclOperation)),
            rng.choice((2, 3, 3)),
        )
    return Acl(
        rng.choice(NUMBERS),
        rng.choice(NAMES),
        rng.choice(PATTERNS),
        rng.choice(PRINCIPALS),
        rng.choice(HOSTS),
        rng.choice(NUMBERS),
        rng.choice(NUMBERS),
    )


def any_filter(rng: random.Random) -> AclFilterPattern:
    def or_wildcard(value: Any, choice: Callable[[], Any]) -> Any:
        return choice() if rng.random() < 0.3 else value

    acl = any_acl(rng)
    return AclFilterPattern(
        or_wildcard(acl.resource_type, lambda: 1),
        or_wildcard(acl.name, lambda: None),
        or_wildcard(acl.pattern_type, lambda: rng.choice((1, 2))),
        or_wildcard(acl.principal, lambda: None),
        or_wildcard(acl.host, lambda: None),
        or_wildcard(acl.operation, lambda: 1),
        or_wildcard(acl.permission, lambda: 1),
    )


class Case(NamedTuple):
    acls: list[Acl]
    checks: list[tuple[Principal, str, AclOperation, AclResourceType, str]]
    filters: list[AclFilterPattern]


def cases(rng: random.Random) -> Case:
    every = [any_acl(rng) for _ in range(rng.randrange(12))]
    checks = [
        (
            rng.choice((Principal("User", "alice"), Principal("User", "a:b"), Principal("Group", "alice"))),
            rng.choice(("10.0.0.1", "10.0.0.2", "::1", "host")),
            rng.choice(list(AclOperation)),
            rng.choice((AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.SUBJECT)),
            rng.choice([name for name in NAMES if name]),
        )
        for _ in range(6)
    ]
    return Case(every, checks, [any_filter(rng) for _ in range(4)])


def check_decisions(case: Case) -> str:
    valid = list(dict.fromkeys(acl for acl in case.acls if find_acl_error(acl) is None))
    authorizer = Authorizer()
    authorizer.apply_delta(Delta(1, acls=tuple(RecordChange(None, acl) for acl in valid)))
    canonical = [_with_canonical_host(acl) for acl in valid]
    for check in case.checks:
        assert authorizer.is_authorized(*check) is is_allowed(canonical, *check, everyone_if_no_acl=False), check
        assert authorizer.is_authorized_for_any(*check[:4]) is is_allowed_on_any(canonical, *check[:4]), check
    for wanted in case.filters:
        if wanted.is_valid:
            assert [acl for acl in valid if wanted.matches(acl)] == [
                acl for acl in valid if filter_matches(wanted, acl)
            ]
        only = wanted.exact_acl
        assert only is None or [acl for acl in valid if wanted.matches(acl)] == [acl for acl in valid if acl == only]
    return "all valid" if len(valid) == len(case.acls) else "some invalid"


def _with_canonical_host(acl: Acl) -> Acl:
    """Return the ACL with a canonical IPv6 address, as connections have it: the naive rules compare text."""
    try:
        return structs.replace(acl, host=str(ip_address(acl.host)))
    except ValueError:
        return acl


TARGETS: Final = (FuzzTarget("ACLs and filters", cases, check_decisions),)
