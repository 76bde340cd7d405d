"""ApiVersions: what this node speaks, as the table of APIs has it, and what it can do.

Of Kafka's features `metadata.version` and `transaction.version` are told, and Chronik's own beside them. The others
switch on what is not built here: new kinds of groups, eligible leader replicas. Java's producers use transactions v2
where `transaction.version` is 2.

A version that is not spoken here is answered in version 0 with UNSUPPORTED_VERSION and the same list, so that the
client can choose again; the router does that before a handler is asked.
"""

from __future__ import annotations

import re

from chronik.admin.features import features_of
from chronik.api.shared.context import Context, Services
from chronik.limits import CLIENT_SOFTWARE_CHARACTERS_MAX
from chronik.protocol.apis import KAFKA_APIS
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

FIRST_VERSION_WITH_LOWEST_0 = 4
"""Clients of version 3 cannot read that a feature may be at 0: KAFKA-17492."""

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(services: Services, request: ApiVersionsRequest, context: Context) -> ApiVersionsResponse:
    if context.version >= 3:
        for text in (request.client_software_name, request.client_software_version):
            if len(text) > CLIENT_SOFTWARE_CHARACTERS_MAX or not _SOFTWARE.fullmatch(text):
                return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        context.peer.software = f"{request.client_software_name} {request.client_software_version}"
    response = failure(request, ErrorCode.NONE)
    for name, feature in features_of(services.image).items():
        if feature.lowest > 0 or context.version >= FIRST_VERSION_WITH_LOWEST_0:
            response.supported_features.append(
                SupportedFeatureKey(name=name, min_version=feature.lowest, max_version=feature.highest)
            )
        if feature.level > 0:
            response.finalized_features.append(
                FinalizedFeatureKey(name=name, min_version_level=feature.level, max_version_level=feature.level)
            )
    response.finalized_features_epoch = services.image.applied_index
    return response


def failure(request: ApiVersionsRequest, code: ErrorCode) -> ApiVersionsResponse:
    """Tells what is spoken, so that the client can choose again."""
    return ApiVersionsResponse(
        error_code=code,
        api_keys=[
            ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)
            for api in KAFKA_APIS.values()
        ],
    )
