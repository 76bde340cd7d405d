"""DescribeImage (Chronik API key 20003): returns the metadata image as a snapshot, for backups and imports."""

from __future__ import annotations

from chronik.api.shared.context import RequestContext, Services
from chronik.metadata.snapshot import encode_snapshot
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.describe_image import DescribeImageRequest, DescribeImageResponse, ImageChunk
from chronik.scheduler import yield_loop


async def handle(services: Services, request: DescribeImageRequest, context: RequestContext) -> DescribeImageResponse:
    if context.may_be_stale:
        return DescribeImageResponse(
            error_code=ErrorCode.NOT_CONTROLLER,
            error_message="No majority confirmed that this node's metadata is current: retry on another node.",
        )
    response = DescribeImageResponse()
    for chunk in encode_snapshot(services.image.freeze()):
        response.chunks.append(ImageChunk(data=chunk))
        await yield_loop()
    return response
