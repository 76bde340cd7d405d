from __future__ import annotations

import msgspec
import pytest

from chronik.limits import ACL_NAME_CHARACTERS_MAX
from chronik.metadata.records import Acl
from chronik.protocol.permissions import AclOperation, AclResourceType
from chronik.security.acls import ANY_VALUE, MATCH_PATTERN, AclFilterPattern, find_acl_error

LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3

EVERYTHING = AclFilterPattern(ANY_VALUE, None, ANY_VALUE, None, None, ANY_VALUE, ANY_VALUE)
ACL = Acl(AclResourceType.TOPIC, "topic", LITERAL, "User:a", "*", AclOperation.READ, ALLOW)
WILD = Acl(AclResourceType.TOPIC, "*", LITERAL, "User:a", "*", AclOperation.READ, ALLOW)
PREFIX = Acl(AclResourceType.TOPIC, "to", PREFIXED, "User:a", "*", AclOperation.READ, ALLOW)
OTHER = Acl(AclResourceType.GROUP, "g", LITERAL, "User:b", "10.0.0.1", AclOperation.DELETE, DENY)
ALL = [ACL, WILD, PREFIX, OTHER]


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, ALL),
        ({"resource_type": AclResourceType.GROUP}, [OTHER]),
        ({"principal": "User:a"}, [ACL, WILD, PREFIX]),
        ({"host": "10.0.0.1"}, [OTHER]),
        ({"operation": AclOperation.DELETE}, [OTHER]),
        ({"permission": ALLOW}, [ACL, WILD, PREFIX]),
        ({"pattern_type": LITERAL}, [ACL, WILD, OTHER]),
        ({"pattern_type": PREFIXED}, [PREFIX]),
        ({"name": "topic"}, [ACL]),
        ({"name": "*"}, [WILD]),
        ({"name": "topic", "pattern_type": LITERAL}, [ACL]),
        ({"name": "to", "pattern_type": PREFIXED}, [PREFIX]),
        ({"name": "topic", "pattern_type": PREFIXED}, []),
        ({"name": "topic", "pattern_type": MATCH_PATTERN, "resource_type": AclResourceType.TOPIC}, [ACL, WILD, PREFIX]),
        ({"name": "t", "pattern_type": MATCH_PATTERN, "resource_type": AclResourceType.TOPIC}, [WILD]),
    ],
)
def test_acl_filter_matches_same_acls_as_kafka(changes: dict[str, object], found: list[Acl]) -> None:
    wanted = EVERYTHING._replace(**changes)  # type: ignore[arg-type]
    assert wanted.is_valid
    assert [acl for acl in ALL if wanted.matches(acl)] == found


def test_filter_for_any_resource_type_matches_only_types_of_kafka() -> None:
    subject = msgspec.structs.replace(ACL, resource_type=AclResourceType.SUBJECT)
    assert not EVERYTHING.matches(subject)
    assert EVERYTHING._replace(resource_type=AclResourceType.SUBJECT).matches(subject)


def test_filter_without_wildcards_has_exact_acl() -> None:
    assert AclFilterPattern(*_fields(ACL)).exact_acl == ACL
    assert AclFilterPattern(*_fields(ACL))._replace(host=None).exact_acl is None
    assert AclFilterPattern(*_fields(ACL))._replace(pattern_type=MATCH_PATTERN).exact_acl is None
    assert EVERYTHING.exact_acl is None


def _fields(acl: Acl) -> tuple[int, str, int, str, str, int, int]:
    return (acl.resource_type, acl.name, acl.pattern_type, acl.principal, acl.host, acl.operation, acl.permission)


@pytest.mark.parametrize("field", ["resource_type", "pattern_type", "operation", "permission"])
@pytest.mark.parametrize("number", [-1, 0, 99])
def test_filter_with_unknown_enum_value_is_invalid(field: str, number: int) -> None:
    assert not EVERYTHING._replace(**{field: number}).is_valid  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({}, None),
        ({"resource_type": ANY_VALUE}, "Invalid resourceType ANY"),
        ({"pattern_type": MATCH_PATTERN}, "Invalid patternType 2"),
        ({"operation": 0}, "Invalid operation 0"),
        ({"permission": ANY_VALUE}, "Invalid permissionType ANY"),
        ({"name": ""}, "Invalid empty resource name"),
        ({"host": ""}, "Invalid empty host"),
        ({"resource_type": AclResourceType.CLUSTER}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ({"principal": "alice"}, "Could not parse principal from `alice`: TYPE:NAME, such as User:alice"),
        ({"name": "n" * ACL_NAME_CHARACTERS_MAX}, None),
        ({"name": "n" * (ACL_NAME_CHARACTERS_MAX + 1)}, "A name in an ACL has at most 1024 characters"),
        ({"host": "n" * (ACL_NAME_CHARACTERS_MAX + 1)}, "A name in an ACL has at most 1024 characters"),
    ],
)
def test_invalid_acl_is_rejected_with_kafka_message(changes: dict[str, object], fault: str | None) -> None:
    acl = Acl(**{**{name: getattr(ACL, name) for name in ACL.__struct_fields__}, **changes})
    assert find_acl_error(acl) == fault
