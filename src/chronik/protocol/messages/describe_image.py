"""DescribeImage: return the metadata image at one index, encoded as in a snapshot.

An API of Chronik, which ApiVersions does not list.
"""

from __future__ import annotations

from chronik.protocol.schema import Request, Response, Struct, array, binary, int16, int32, string


class DescribeImageRequest(Request):
    pass


class ImageChunk(Struct):
    data: bytes = binary("0+")


class DescribeImageResponse(Response):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    chunks: list[ImageChunk] = array(ImageChunk, "0+")
