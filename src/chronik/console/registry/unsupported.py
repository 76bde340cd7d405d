"""Parts of Confluent's REST API that the registry does not implement, and the errors that name them."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final, NamedTuple

from chronik.console.registry.errors import RequestError


class UnsupportedApi(NamedTuple):
    """A part of Confluent's API, and the status of responses to its requests."""

    path: str
    """The path with all paths below it. `*` stands for any part."""
    feature: str
    status: HTTPStatus = HTTPStatus.NOT_IMPLEMENTED


# Confluent's serializers look associations up by default, and use the fallback of the strategy after status 404 only.
UNSUPPORTED_APIS: Final = (
    UnsupportedApi("/dek-registry", "the DEK registry (client-side field level encryption)"),
    UnsupportedApi("/exporters", "exporters (schema linking)"),
    UnsupportedApi("/associations", "associations of subjects with topics", HTTPStatus.NOT_FOUND),
    UnsupportedApi("/catalog", "the catalog"),
    UnsupportedApi("/subjects/*/versions/*/tags", "changes of tags"),
    UnsupportedApi("/v1/metadata/deployment", "deployment information", HTTPStatus.NOT_FOUND),
)


class UnsupportedApiError(RequestError):
    """A request for a part of Confluent's API that the registry does not implement."""

    def __init__(self, feature: str, status: HTTPStatus = HTTPStatus.NOT_IMPLEMENTED) -> None:
        super().__init__(status, f"This registry does not support {feature}")


def find_unsupported_api(parts: list[str]) -> UnsupportedApi | None:
    """Return the part of Confluent's API to which the parts of a path belong, or None."""
    for each in UNSUPPORTED_APIS:
        wanted = each.path.split("/")[1:]
        if len(parts) >= len(wanted) and all(name in ("*", part) for name, part in zip(wanted, parts, strict=False)):
            return each
    return None


def check_tag_changes(*changes: bytes | memoryview) -> None:
    """Check the fields of a registration, as JSON, that add tags to a schema or remove some.

    Raises:
        UnsupportedApiError: A tag would be changed. To ignore the fields would lose the change.
    """
    if any(bytes(each) not in (b"null", b"[]") for each in changes):
        raise UnsupportedApiError("changes of tags (schemaTagsToAdd, schemaTagsToRemove)")
