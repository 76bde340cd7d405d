"""ApiVersions: what this node speaks, as declared by the messages themselves, and what it can do.

Of Kafka's features only `metadata.version` is told, from which tools take the release that a node is like. The others
switch on what is not built here: transactions of version 2, new kinds of groups, eligible leader replicas.

A version that is not spoken here is answered in version 0 with UNSUPPORTED_VERSION and the same list, so that the
client can choose again; the router does that before a handler is asked.
"""

from __future__ import annotations

import re

from chronik.api.shared.context import Context, Services
from chronik.protocol.apis import APIS
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

METADATA_FEATURE = "metadata.version"
METADATA_LEVEL = 30
"""Kafka's 4.3-IV0, whose messages are spoken here. The one level that is supported: metadata is kept in Chronik's own
commands, so that there is nothing to step down to."""

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(services: Services, request: ApiVersionsRequest, context: Context) -> ApiVersionsResponse:
    if context.version >= 3:
        for text in (request.client_software_name, request.client_software_version):
            if not _SOFTWARE.fullmatch(text):
                return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        context.peer.software = f"{request.client_software_name} {request.client_software_version}"
    response = failure(request, ErrorCode.NONE)
    response.supported_features = [
        SupportedFeatureKey(name=METADATA_FEATURE, min_version=METADATA_LEVEL, max_version=METADATA_LEVEL)
    ]
    response.finalized_features = [
        FinalizedFeatureKey(name=METADATA_FEATURE, min_version_level=METADATA_LEVEL, max_version_level=METADATA_LEVEL)
    ]
    response.finalized_features_epoch = services.image.applied_index
    return response


def failure(request: ApiVersionsRequest, code: ErrorCode) -> ApiVersionsResponse:
    """With what is spoken, so that the client can choose again."""
    return ApiVersionsResponse(
        error_code=code,
        api_keys=[
            ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)
            for api in APIS.values()
        ],
    )
