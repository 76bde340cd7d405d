"""IncrementalAlterConfigs: set, delete, append to or subtract from single configs."""

from __future__ import annotations

from chronik.protocol.messages.alter_configs import AlterConfigsResourceResponse
from chronik.protocol.schema import Request, Response, Struct, array, boolean, int8, int32, mirror_request_field, string


class IncrementalAlterableConfig(Struct):
    name: str = string("0+")
    config_operation: int = int8("0+")
    value: str | None = string("0+", nullable="0+")


class IncrementalAlterConfigsResource(Struct):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configs: list[IncrementalAlterableConfig] = array(IncrementalAlterableConfig, "0+")


class IncrementalAlterConfigsRequest(Request):
    resources: list[IncrementalAlterConfigsResource] = array(IncrementalAlterConfigsResource, "0+")
    validate_only: bool = boolean("0+")


class IncrementalAlterConfigsResponse(Response):
    throttle_time_ms: int = int32("0+")
    responses: list[AlterConfigsResourceResponse] = mirror_request_field(
        "resources", array(AlterConfigsResourceResponse, "0+")
    )
