"""ACL administration: list, add and remove ACLs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from chronik.client.cluster import ClusterClient
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from chronik.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from chronik.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

MATCH_ANY = 1


class AclBinding(NamedTuple):
    """An ACL, with Kafka's numbers for types, operations and permissions."""

    resource_type: int
    name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int


class AclFilter(NamedTuple):
    """A filter that matches ACLs. ANY and None match everything."""

    resource_type: int = MATCH_ANY
    name: str | None = None
    pattern_type: int = MATCH_ANY
    principal: str | None = None
    host: str | None = None
    operation: int = MATCH_ANY
    permission: int = MATCH_ANY


def list_acls(cluster: ClusterClient, wanted: AclFilter) -> list[AclBinding]:
    """Return the ACLs that match the filter. Raises KafkaError."""
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
    _raise_for(response.error_code, response.error_message)
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
    """Add ACLs. Raises the KafkaError of the first rejected one."""
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
        _raise_for(result.error_code, result.error_message)


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
        _raise_for(result.error_code, result.error_message)
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
        message_text = f"{len(removed)} ACLs were removed, {len(remaining)} may still exist: {failed.error_message}"
        raise KafkaError(ErrorCode(failed.error_code), message_text)
    return list(removed)


def _raise_for(code: int, message: str | None) -> None:
    if code:
        raise KafkaError(ErrorCode(code), message or ErrorCode(code).message)
