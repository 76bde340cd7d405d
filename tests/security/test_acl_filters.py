from __future__ import annotations

import pytest

from chronik.limits import ACL_NAME_CHARACTERS_MAX
from chronik.metadata.records import Acl
from chronik.protocol.permissions import Operation, ResourceType
from chronik.security.acls import ANY, MATCH, Filter, fault_of

LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3

EVERYTHING = Filter(ANY, None, ANY, None, None, ANY, ANY)
ACL = Acl(ResourceType.TOPIC, "topic", LITERAL, "User:a", "*", Operation.READ, ALLOW)
WILD = Acl(ResourceType.TOPIC, "*", LITERAL, "User:a", "*", Operation.READ, ALLOW)
PREFIX = Acl(ResourceType.TOPIC, "to", PREFIXED, "User:a", "*", Operation.READ, ALLOW)
OTHER = Acl(ResourceType.GROUP, "g", LITERAL, "User:b", "10.0.0.1", Operation.DELETE, DENY)
ALL = [ACL, WILD, PREFIX, OTHER]


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, ALL),
        ({"resource_type": ResourceType.GROUP}, [OTHER]),
        ({"principal": "User:a"}, [ACL, WILD, PREFIX]),
        ({"host": "10.0.0.1"}, [OTHER]),
        ({"operation": Operation.DELETE}, [OTHER]),
        ({"permission": ALLOW}, [ACL, WILD, PREFIX]),
        ({"pattern_type": LITERAL}, [ACL, WILD, OTHER]),
        ({"pattern_type": PREFIXED}, [PREFIX]),
        ({"name": "topic"}, [ACL]),
        ({"name": "*"}, [WILD]),
        ({"name": "topic", "pattern_type": LITERAL}, [ACL]),
        ({"name": "to", "pattern_type": PREFIXED}, [PREFIX]),
        ({"name": "topic", "pattern_type": PREFIXED}, []),
        ({"name": "topic", "pattern_type": MATCH, "resource_type": ResourceType.TOPIC}, [ACL, WILD, PREFIX]),
        ({"name": "t", "pattern_type": MATCH, "resource_type": ResourceType.TOPIC}, [WILD]),
    ],
)
def test_acl_filter_matches_same_acls_as_kafka(changes: dict[str, object], found: list[Acl]) -> None:
    wanted = EVERYTHING._replace(**changes)  # type: ignore[arg-type]
    assert wanted.is_known
    assert [acl for acl in ALL if wanted.finds(acl)] == found


def test_filter_without_wildcards_has_exact_acl() -> None:
    assert Filter(*_fields(ACL)).only == ACL
    assert Filter(*_fields(ACL))._replace(host=None).only is None
    assert Filter(*_fields(ACL))._replace(pattern_type=MATCH).only is None
    assert EVERYTHING.only is None


def _fields(acl: Acl) -> tuple[int, str, int, str, str, int, int]:
    return (acl.resource_type, acl.name, acl.pattern_type, acl.principal, acl.host, acl.operation, acl.permission)


@pytest.mark.parametrize("field", ["resource_type", "pattern_type", "operation", "permission"])
@pytest.mark.parametrize("number", [-1, 0, 99])
def test_filter_with_unknown_enum_value_is_invalid(field: str, number: int) -> None:
    assert not EVERYTHING._replace(**{field: number}).is_known  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({}, None),
        ({"resource_type": ANY}, "Invalid resourceType ANY"),
        ({"pattern_type": MATCH}, "Invalid patternType 2"),
        ({"operation": 0}, "Invalid operation 0"),
        ({"permission": ANY}, "Invalid permissionType ANY"),
        ({"name": ""}, "Invalid empty resource name"),
        ({"host": ""}, "Invalid empty host"),
        ({"resource_type": ResourceType.CLUSTER}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ({"principal": "alice"}, "Could not parse principal from `alice`: TYPE:NAME, such as User:alice"),
        ({"name": "n" * ACL_NAME_CHARACTERS_MAX}, None),
        ({"name": "n" * (ACL_NAME_CHARACTERS_MAX + 1)}, "A name in an ACL has at most 1024 characters"),
        ({"host": "n" * (ACL_NAME_CHARACTERS_MAX + 1)}, "A name in an ACL has at most 1024 characters"),
    ],
)
def test_invalid_acl_is_rejected_with_kafka_message(changes: dict[str, object], fault: str | None) -> None:
    acl = Acl(**{**{name: getattr(ACL, name) for name in ACL.__struct_fields__}, **changes})
    assert fault_of(acl) == fault
