"""DeleteAcls: delete the ACLs that match filters.

Version 1 adds pattern types, version 3 the user resource type.
"""

from __future__ import annotations

from chronik.protocol.messages.describe_acls import LITERAL
from chronik.protocol.schema import Request, Response, Struct, array, int8, int16, int32, mirror_request_field, string


class DeleteAclsFilter(Struct):
    resource_type_filter: int = int8("0+")
    resource_name_filter: str | None = string("0+", nullable="0+")
    pattern_type_filter: int = int8("1+", default=LITERAL)
    principal_filter: str | None = string("0+", nullable="0+")
    host_filter: str | None = string("0+", nullable="0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


class DeleteAclsRequest(Request):
    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter, "0+")


class DeleteAclsMatchingAcl(Struct):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    pattern_type: int = int8("1+", default=LITERAL)
    principal: str = string("0+")
    host: str = string("0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


class DeleteAclsFilterResult(Struct):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl, "0+")


class DeleteAclsResponse(Response):
    throttle_time_ms: int = int32("0+")
    filter_results: list[DeleteAclsFilterResult] = mirror_request_field("filters", array(DeleteAclsFilterResult, "0+"))
