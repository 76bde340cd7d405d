"""Content types of requests and responses: those of Confluent's schema registry."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from chronik.console.registry.errors import CONTENT_TYPE, RequestError

JSON: Final = "application/json"
PRODUCED: Final = (CONTENT_TYPE, "application/vnd.schemaregistry+json", JSON)
"""The content types of responses, the preferred one first. All stand for the same JSON."""

CONSUMED: Final = frozenset({*PRODUCED, "application/octet-stream"})
"""The content types of request bodies. Browsers cannot send them to other sites without CORS."""

ACCEPTED_TYPES_MAX: Final = 20
"""Maximum number of media ranges in an Accept header that are considered. Browsers send less than 10."""


def choose_content_type(accept: str) -> str:
    """Return the content type of the response for an Accept header.

    Raises:
        RequestError: The client accepts none of the supported types.
    """
    ranges = [_parse_range(each) for each in accept.split(",")[:ACCEPTED_TYPES_MAX] if each.strip()]
    if not ranges:
        return CONTENT_TYPE
    qualities = {each: _get_quality(each, ranges) for each in PRODUCED}
    best = max(PRODUCED, key=lambda each: qualities[each])  # the first one of several
    if qualities[best] <= 0:
        raise RequestError(HTTPStatus.NOT_ACCEPTABLE)
    return best


def check_content_type(content_type: str) -> None:
    """Raise RequestError for a request body in an unsupported content type. A missing type is accepted."""
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type and media_type not in CONSUMED:
        raise RequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE)


def _parse_range(text: str) -> tuple[str, float]:
    """Return the media type or range and the quality in an element of an Accept header."""
    media_type, *parameters = (part.strip().lower() for part in text.split(";"))
    quality = next((each[2:] for each in parameters if each.startswith("q=")), "1")
    try:
        return media_type, float(quality)
    except ValueError:
        return media_type, 1.0


def _get_quality(content_type: str, ranges: list[tuple[str, float]]) -> float:
    """Return the quality of the most specific range that contains a content type, 0 if none does."""
    by_range = dict(ranges)
    for media_range in (content_type, "application/*", "*/*"):
        if media_range in by_range:
            return by_range[media_range]
    return 0.0
