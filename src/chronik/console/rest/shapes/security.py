"""Users, ACLs and quotas."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from chronik.console.rest.shapes.common import Body, Name, Words

Mechanism = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]
ResourceName = Literal["topic", "group", "cluster", "transactional-id", "user", "delegation-token"]
OperationName = Literal[
    "all",
    "read",
    "write",
    "create",
    "delete",
    "alter",
    "describe",
    "cluster-action",
    "describe-configs",
    "alter-configs",
    "idempotent-write",
    "create-tokens",
    "describe-tokens",
    "two-phase-commit",
]
Pattern = Literal["literal", "prefixed"]
Permission = Literal["allow", "deny"]
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]


class Credential(msgspec.Struct):
    mechanism: str
    iterations: int


class User(msgspec.Struct):
    name: str
    credentials: list[Credential]


class NewPassword(Body, kw_only=True):
    name: Text
    password: Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
    mechanisms: Annotated[list[Mechanism], msgspec.Meta(min_length=1, max_length=2)] = msgspec.field(
        default_factory=lambda: ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    )
    iterations: Annotated[int, msgspec.Meta(ge=4096, le=16_384)] = 8192


class AclShape(Body, kw_only=True):
    resource: ResourceName
    name: Text
    pattern: Pattern = "literal"
    principal: Text
    host: Text = "*"
    operation: OperationName
    permission: Permission = "allow"


class Acls(Body):
    acls: Annotated[list[AclShape], msgspec.Meta(min_length=1, max_length=1000)]


class AclQuestion(msgspec.Struct, kw_only=True):
    resource: ResourceName | None = None
    name: Words | None = None
    pattern: Pattern | None = None
    principal: Words | None = None
    host: Words | None = None
    operation: OperationName | None = None
    permission: Permission | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=500)] = 100
    after: Words | None = None


class QuotaEntity(Body, kw_only=True):
    """A user, a client id, both, or an address. An empty name is the default: whoever has none of their own."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None


class Quota(msgspec.Struct):
    entity: QuotaEntity
    values: dict[str, float]
    """By Kafka's names, such as producer_byte_rate."""


class QuotaChange(Body):
    entity: QuotaEntity
    values: Annotated[dict[Name, float | None], msgspec.Meta(min_length=1, max_length=20)]
    """null: it is removed."""
