"""CreateAcls: create ACLs.

Version 1 adds pattern types, version 3 the user resource type.
"""

from __future__ import annotations

from chronik.protocol.messages.describe_acls import LITERAL
from chronik.protocol.schema import Request, Response, Struct, array, int8, int16, int32, mirror_request_field, string


class AclCreation(Struct):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    resource_pattern_type: int = int8("1+", default=LITERAL)
    principal: str = string("0+")
    host: str = string("0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


class CreateAclsRequest(Request):
    creations: list[AclCreation] = array(AclCreation, "0+")


class AclCreationResult(Struct):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


class CreateAclsResponse(Response):
    throttle_time_ms: int = int32("0+")
    results: list[AclCreationResult] = mirror_request_field("creations", array(AclCreationResult, "0+"))
