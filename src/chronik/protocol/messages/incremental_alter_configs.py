"""IncrementalAlterConfigs: set, delete, append to or subtract from single configs."""

from __future__ import annotations

from chronik.protocol.messages.alter_configs import AlterConfigsResourceResponse
from chronik.protocol.schema import Request, Response, Struct, array, boolean, int8, int32, mirror, string


class AlterableConfig(Struct):
    name: str = string("0+")
    config_operation: int = int8("0+")
    value: str | None = string("0+", nullable="0+")


class AlterConfigsResource(Struct):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configs: list[AlterableConfig] = array(AlterableConfig, "0+")


class IncrementalAlterConfigsRequest(Request):
    resources: list[AlterConfigsResource] = array(AlterConfigsResource, "0+")
    validate_only: bool = boolean("0+")


class IncrementalAlterConfigsResponse(Response):
    throttle_time_ms: int = int32("0+")
    responses: list[AlterConfigsResourceResponse] = mirror("resources", array(AlterConfigsResourceResponse, "0+"))
