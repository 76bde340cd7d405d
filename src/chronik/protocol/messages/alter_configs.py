"""AlterConfigs: replace all dynamic configs of topics or brokers."""

from __future__ import annotations

from chronik.protocol.schema import (
    Request,
    Response,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    mirror_request_field,
    string,
)


class AlterableConfig(Struct):
    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")


class AlterConfigsResource(Struct):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configs: list[AlterableConfig] = array(AlterableConfig, "0+")


class AlterConfigsRequest(Request):
    resources: list[AlterConfigsResource] = array(AlterConfigsResource, "0+")
    validate_only: bool = boolean("0+")


class AlterConfigsResourceResponse(Struct):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    resource_type: int = mirror_request_field("resource_type", int8("0+"))
    resource_name: str = mirror_request_field("resource_name", string("0+"))


class AlterConfigsResponse(Response):
    throttle_time_ms: int = int32("0+")
    responses: list[AlterConfigsResourceResponse] = mirror_request_field(
        "resources", array(AlterConfigsResourceResponse, "0+")
    )
