"""Security administration: ACLs, client quotas and SCRAM users. Passwords are salted here and never sent."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from chronik.client.cluster import ClusterClient, raise_for_code
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntity,
    QuotaAlterationEntry,
    QuotaOperation,
)
from chronik.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from chronik.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from chronik.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from chronik.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from chronik.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    QuotaComponent,
)
from chronik.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    ScramUser,
)
from chronik.protocol.permissions import AclResourceType
from chronik.security.sasl.scram_keys import MECHANISMS_BY_NAME, MECHANISMS_BY_NUMBER, generate_salt, salt_password
from chronik.wording import pluralize

MATCH_ANY = 1

QuotaEntityNames = Mapping[str, str | None]
"""A quota entity: names of its user, client id and IP, by entity type; None is the default entity."""

_MATCH_EXACT, _MATCH_DEFAULT = 0, 1

IterationsByMechanism = dict[str, int]
"""Number of SCRAM iterations by SCRAM mechanism."""


class AclBinding(NamedTuple):
    """An ACL binding, with Kafka's numeric codes for types, operations and permissions."""

    resource_type: int
    name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int


class AclFilter(NamedTuple):
    """A filter for ACL bindings. ANY and None match every value.

    As a resource type, brokers take ANY for each of Kafka's types. `list_acls` therefore asks for subjects as well.
    """

    resource_type: int = MATCH_ANY
    name: str | None = None
    pattern_type: int = MATCH_ANY
    principal: str | None = None
    host: str | None = None
    operation: int = MATCH_ANY
    permission: int = MATCH_ANY


def list_acls(cluster: ClusterClient, wanted: AclFilter) -> list[AclBinding]:
    """Return the ACLs that match the filter, including those on subjects of the schema registry.

    Raises:
        KafkaError: The request is rejected.
    """
    found = _describe_acls(cluster, wanted)
    if wanted.resource_type == MATCH_ANY:
        try:
            found += _describe_acls(cluster, wanted._replace(resource_type=AclResourceType.SUBJECT))
        except KafkaError as error:  # brokers without a schema registry do not know the resource type
            if error.code is not ErrorCode.INVALID_REQUEST:
                raise
    return found


def _describe_acls(cluster: ClusterClient, wanted: AclFilter) -> list[AclBinding]:
    request = DescribeAclsRequest(
        resource_type_filter=wanted.resource_type,
        resource_name_filter=wanted.name,
        pattern_type_filter=wanted.pattern_type,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
    )
    response = cluster.retry(lambda: cluster.any_broker().request(request, DescribeAclsResponse))
    _raise_for_code(response.error_code, response.error_message)
    return [
        AclBinding(
            resource.resource_type,
            resource.resource_name,
            resource.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for resource in response.resources
        for acl in resource.acls
    ]


def add_acls(cluster: ClusterClient, acls: Sequence[AclBinding]) -> None:
    """Add ACLs. Raise the KafkaError of the first rejected ACL."""
    request = CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=acl.resource_type,
                resource_name=acl.name,
                resource_pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in acls
        ]
    )
    response = cluster.retry(lambda: cluster.controller().request(request, CreateAclsResponse))
    for result in response.results:
        _raise_for_code(result.error_code, result.error_message)


def remove_acls(cluster: ClusterClient, filters: Sequence[AclFilter]) -> list[AclBinding]:
    """Remove the ACLs that match any of the filters, and return them.

    Raises:
        KafkaError: If a filter is rejected or an ACL could not be removed; the message says how many were removed.
    """
    request = DeleteAclsRequest(
        filters=[
            DeleteAclsFilter(
                resource_type_filter=each.resource_type,
                resource_name_filter=each.name,
                pattern_type_filter=each.pattern_type,
                principal_filter=each.principal,
                host_filter=each.host,
                operation=each.operation,
                permission_type=each.permission,
            )
            for each in filters
        ]
    )
    response = cluster.retry(lambda: cluster.controller().request(request, DeleteAclsResponse))
    removed: dict[AclBinding, None] = {}
    remaining: dict[AclBinding, DeleteAclsMatchingAcl] = {}
    for result in response.filter_results:
        _raise_for_code(result.error_code, result.error_message)
        for acl in result.matching_acls:
            binding = AclBinding(
                acl.resource_type,
                acl.resource_name,
                acl.pattern_type,
                acl.principal,
                acl.host,
                acl.operation,
                acl.permission_type,
            )
            if acl.error_code:
                remaining[binding] = acl
            else:
                removed[binding] = None
    for failed in remaining.values():
        message_text = (
            f"{pluralize(len(removed), 'ACL')} removed, {len(remaining)} may still exist: {failed.error_message}"
        )
        raise KafkaError(ErrorCode(failed.error_code), message_text)
    return list(removed)


def _raise_for_code(code: int, message: str | None) -> None:
    if code:
        raise KafkaError(ErrorCode(code), message or ErrorCode(code).message)


def describe_quotas(
    cluster: ClusterClient, named: QuotaEntityNames
) -> list[tuple[dict[str, str | None], dict[str, float]]]:
    """Return the entities that match the names, each with its quotas by key.

    Raise KafkaError if the request is rejected.
    """
    components = [
        QuotaComponent(
            entity_type=entity_type_name, match_type=_MATCH_DEFAULT if name is None else _MATCH_EXACT, match=name
        )
        for entity_type_name, name in named.items()
    ]
    request = DescribeClientQuotasRequest(components=components, strict=False)
    response = cluster.retry(lambda: cluster.any_broker().request(request, DescribeClientQuotasResponse))
    raise_for_code(response.error_code, "quotas not described", response.error_message)
    return [
        (
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in response.entries or []
    ]


def alter_quotas(cluster: ClusterClient, named: QuotaEntityNames, changes: Mapping[str, float | None]) -> None:
    """Set quotas of an entity. A value of None removes the quota. Raise KafkaError if the change is rejected."""
    entry = QuotaAlterationEntry(
        entity=[
            AlteredEntity(entity_type=entity_type_name, entity_name=name) for entity_type_name, name in named.items()
        ],
        ops=[QuotaOperation(key=key, value=value or 0.0, remove=value is None) for key, value in changes.items()],
    )
    request = AlterClientQuotasRequest(entries=[entry], validate_only=False)
    response = cluster.retry(lambda: cluster.any_broker().request(request, AlterClientQuotasResponse))
    for result in response.entries:
        raise_for_code(result.error_code, "quotas not altered", result.error_message)


def list_users(cluster: ClusterClient, names: Sequence[str] | None = None) -> dict[str, IterationsByMechanism]:
    """Return the SCRAM mechanisms of all users, or of the given users that exist, sorted by user."""
    requested = None if names is None else [ScramUser(name=name) for name in names]
    request = DescribeUserScramCredentialsRequest(users=requested)

    def send() -> dict[str, IterationsByMechanism]:
        response = cluster.any_broker().request(request, DescribeUserScramCredentialsResponse)
        raise_for_code(response.error_code, "users", response.error_message)
        found = {}
        for user in response.results:
            if user.error_code == ErrorCode.RESOURCE_NOT_FOUND:
                continue
            raise_for_code(user.error_code, f"user {user.user!r}", user.error_message)
            known = (each for each in user.credential_infos if each.mechanism in MECHANISMS_BY_NUMBER)
            found[user.user] = {MECHANISMS_BY_NUMBER[each.mechanism].name: each.iterations for each in known}
        return found

    return dict(sorted(cluster.retry(send).items()))


def set_password(cluster: ClusterClient, name: str, password: str, mechanisms: Sequence[str], iterations: int) -> None:
    """Set the user's password for the given mechanisms, creating the user if necessary.

    Raise KafkaError if it is rejected.
    """
    upsertions_to_send = []
    for mechanism in mechanisms:
        scram, salt = MECHANISMS_BY_NAME[mechanism], generate_salt(secrets.choice)
        upsertions_to_send.append(
            ScramCredentialUpsertion(
                name=name,
                mechanism=scram.number,
                iterations=iterations,
                salt=salt,
                salted_password=salt_password(password.encode(), salt, iterations, scram.digest),
            )
        )
    _alter_credentials(cluster, AlterUserScramCredentialsRequest(upsertions=upsertions_to_send), name)


def delete_user(cluster: ClusterClient, name: str) -> None:
    """Delete the user by removing all of its SCRAM credentials. Raise KafkaError if the change is rejected."""
    known = list_users(cluster, [name]).get(name)
    if not known:
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"user {name!r} does not exist")
    delete_credentials(cluster, name, list(known))


def delete_credentials(cluster: ClusterClient, name: str, mechanisms: Sequence[str]) -> None:
    """Remove the user's SCRAM credentials for the given mechanisms. Raise KafkaError if the change is rejected."""
    deletions_to_send = [
        ScramCredentialDeletion(name=name, mechanism=MECHANISMS_BY_NAME[mechanism].number) for mechanism in mechanisms
    ]
    _alter_credentials(cluster, AlterUserScramCredentialsRequest(deletions=deletions_to_send), name)


def _alter_credentials(cluster: ClusterClient, request: AlterUserScramCredentialsRequest, name: str) -> None:
    def send() -> None:
        response = cluster.any_broker().request(request, AlterUserScramCredentialsResponse)
        for result in response.results:
            raise_for_code(result.error_code, f"user {name!r}", result.error_message)

    cluster.retry(send)
