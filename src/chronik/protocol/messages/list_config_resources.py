"""ListConfigResources: list the resources that have configs.

Version 0, ListClientMetricsResources, lists only client metrics resources.
"""

from __future__ import annotations

from chronik.protocol.schema import Request, Response, Struct, array, int8, int16, int32, string

CLIENT_METRICS = 16


class ListConfigResourcesRequest(Request):
    resource_types: list[int] = array(int8, "1+")


class ConfigResource(Struct):
    resource_name: str = string("0+")
    resource_type: int = int8("1+", default=CLIENT_METRICS)


class ListConfigResourcesResponse(Response):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    config_resources: list[ConfigResource] = array(ConfigResource, "0+")
