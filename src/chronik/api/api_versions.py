"""ApiVersions (API key 18): returns the supported API versions and features.

Of Kafka's features, only `metadata.version` and `transaction.version` are returned, together with Chronik's own. The
others enable functions that Chronik does not have: new group types and eligible leader replicas. Java producers use
transactions v2 if `transaction.version` is 2.

The router answers an unsupported version of this API with version 0, UNSUPPORTED_VERSION and the same list, so that the
client can retry with a supported version.
"""

from __future__ import annotations

import re

from chronik.admin.features import describe_features
from chronik.api.shared.context import RequestContext, Services
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

FIRST_VERSION_WITH_MINIMUM_0 = 4
"""First ApiVersions version whose clients accept features with a minimum version of 0 (KAFKA-17492)."""

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(services: Services, request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    if context.version >= 3:
        for text in (request.client_software_name, request.client_software_version):
            if len(text) > CLIENT_SOFTWARE_CHARACTERS_MAX or not _SOFTWARE.fullmatch(text):
                return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        context.peer.software = f"{request.client_software_name} {request.client_software_version}"
    response = failure(request, ErrorCode.NONE)
    for name, feature in describe_features(services.image).items():
        if feature.lowest > 0 or context.version >= FIRST_VERSION_WITH_MINIMUM_0:
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
    """Return an ApiVersions response with the error code and the supported versions, for the client's retry."""
    return ApiVersionsResponse(
        error_code=code,
        api_keys=[
            ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)
            for api in KAFKA_APIS.values()
        ],
    )
