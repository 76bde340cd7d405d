"""Models of login sessions, users, ACLs and quotas."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from chronik.console.rest.models.common import Body, DryRun, Name, Words

Mechanism = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]
ResourceName = Literal["topic", "group", "cluster", "transactional-id", "user", "delegation-token", "subject"]
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


class PermissionsQuestion(msgspec.Struct):
    """The query parameters for listing permissions."""

    subject: Words | None = None
    """A subject of the schema registry. Topics, groups and transactional ids list their operations themselves."""


class Permissions(msgspec.Struct):
    """The operations that the principal may perform."""

    cluster: list[OperationName]
    """Operations on the cluster."""
    any: dict[ResourceName, list[OperationName]]
    """Operations on at least one resource of a type, by type: topic, group, transactional-id and subject. As for
    Kafka's clients, only ACLs that name the operation, or all, count."""
    all: dict[ResourceName, list[OperationName]]
    """Operations on every resource of a type. If Describe is missing, lists of such resources may be incomplete."""
    pipelines: bool
    """Whether the principal may see pipelines: Read on topic __chronik_pipelines."""
    subject: list[OperationName] | None = None
    """Operations on the subject of the query; null without one."""


class Credential(msgspec.Struct):
    """A SCRAM credential of a user, without the stored keys."""

    mechanism: str
    iterations: int


class User(msgspec.Struct):
    """A user with SCRAM credentials."""

    name: str
    credentials: list[Credential]


class NewPassword(Body, kw_only=True):
    """A user's new password."""

    name: Text
    password: Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
    mechanisms: Annotated[list[Mechanism], msgspec.Meta(min_length=1, max_length=2)] = msgspec.field(
        default_factory=lambda: ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    )
    iterations: Annotated[int, msgspec.Meta(ge=4096, le=16_384)] = 8192


class AclShape(Body, kw_only=True):
    """An ACL binding."""

    resource: ResourceName
    name: Text
    pattern: Pattern = "literal"
    principal: Text
    host: Text = "*"
    operation: OperationName
    permission: Permission = "allow"


class Acls(Body):
    """A list of ACL bindings."""

    acls: Annotated[list[AclShape], msgspec.Meta(min_length=1, max_length=1000)]


class AclFields(msgspec.Struct, kw_only=True):
    """The query parameters that filter ACLs by their fields."""

    resource: ResourceName | None = None
    name: Words | None = None
    pattern: Literal["literal", "prefixed", "match"] | None = None
    """`match` returns all ACLs that apply to the named resource: literal, prefixed and with the name *."""
    principal: Words | None = None
    host: Words | None = None
    operation: OperationName | None = None
    permission: Permission | None = None


class AclQuestion(AclFields, kw_only=True):
    """The query parameters for listing ACLs."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=500)] = 100
    after: Words | None = None


class ClientAcls(DryRun, kw_only=True):
    """The common fields of the ACLs of a producer and of a consumer."""

    principal: Text
    host: Text = "*"
    pattern: Pattern = "literal"
    """How the names of topics, groups and transactional ids are matched."""
    topics: Annotated[list[Text], msgspec.Meta(min_length=1, max_length=100)]


class ProducerAcls(ClientAcls, kw_only=True):
    """A request to create the ACLs of a producer, as `kafka-acls.sh --producer` does.

    They are Write, Describe and Create on its topics, and Write and Describe on its transactional ids.
    """

    transactional_ids: Annotated[list[Text], msgspec.Meta(max_length=100)] = msgspec.field(default_factory=list)
    idempotent: bool = False
    """Whether to add IdempotentWrite on the cluster. Producers need it only with brokers of Kafka before 2.8."""


class ConsumerAcls(ClientAcls, kw_only=True):
    """A request to create the ACLs of a consumer, as `kafka-acls.sh --consumer` does.

    They are Read and Describe on its topics, and Read on its groups.
    """

    groups: Annotated[list[Text], msgspec.Meta(min_length=1, max_length=100)]


class AclImport(DryRun, kw_only=True):
    """ACLs as CSV."""

    csv: Annotated[str, msgspec.Meta(min_length=1)]
    """The lines of a CSV file with the columns Principal, ResourceType, PatternType, ResourceName, Operation,
    PermissionType and Host. The header is optional. At most 10,000 ACLs."""


class AclAdditions(msgspec.Struct, kw_only=True):
    """The ACLs that were or would be created."""

    added: list[AclShape]
    """The ACLs that did not exist."""
    existing: list[AclShape]
    """The ACLs that already exist."""
    done: bool
    """Whether the ACLs were created."""


class InvalidAcl(msgspec.Struct):
    """An invalid line of a CSV file."""

    line: int
    error: str


class ImportedAcls(AclAdditions, kw_only=True):
    """The ACLs of a CSV file."""

    invalid: list[InvalidAcl]
    """The invalid lines. If there are any, nothing is created."""


class QuotaEntity(Body, kw_only=True):
    """A user, a client id, both, or an IP address. An empty name means the default entity."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None


class Quota(msgspec.Struct):
    """The quotas of an entity."""

    entity: QuotaEntity
    values: dict[str, float]
    """Quota values by Kafka's names, such as producer_byte_rate."""


class QuotaChange(Body):
    """Changes to the quotas of an entity."""

    entity: QuotaEntity
    values: Annotated[dict[Name, float | None], msgspec.Meta(min_length=1, max_length=20)]
    """Quota values by name; null removes a quota."""


class Session(msgspec.Struct):
    """The client's login status."""

    principal: str | None
    """The principal, such as User:alice; null if the client is not logged in but a login is required."""
    logged_in: bool
    login_required: bool
    login_with: str | None
    """The login method. "password": a user name and a password. "token": the node's http_token as the password, without
    a user name. null: no login is required."""
    authorizer: bool
    single_sign_on: str | None = None
    """The path that starts a login at the OpenID Connect provider; null if there is none."""
    node_id: int | None = None
    """The id of this node. This and the following fields are null if the client is not logged in but a login is
    required."""
    cluster_id: str | None = None
    version: str | None = None


class LoggedOut(msgspec.Struct):
    """The response to a logout."""

    done: bool = True
    provider_url: str | None = None
    """The URL that also ends the session at the OpenID Connect provider; null if there is none."""


class Login(Body):
    """The credentials of a login."""

    username: Annotated[str, msgspec.Meta(max_length=1024)]
    password: Annotated[str, msgspec.Meta(max_length=4096)]
