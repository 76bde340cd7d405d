"""DescribeImage: hands out the image as a snapshot holds it, for backups and imports."""

from __future__ import annotations

import asyncio

from chronik.api.shared.context import Context, Services
from chronik.api.shared.long_answers import Long
from chronik.metadata.snapshot import encode_snapshot
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.describe_image import DescribeImageRequest, DescribeImageResponse, ImageChunk


async def handle(services: Services, request: DescribeImageRequest, context: Context) -> Long | DescribeImageResponse:
    if context.may_be_behind:
        return DescribeImageResponse(error_code=ErrorCode.NOT_CONTROLLER, error_message="There is no quorum.")
    response = DescribeImageResponse()
    for chunk in encode_snapshot(services.image.freeze()):
        response.chunks.append(ImageChunk(data=chunk))
        await asyncio.sleep(0)
    return Long(response)
