"""Error responses of the schema registry's REST API, in Confluent's format."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

import msgspec

from chronik.console.http import HttpResponse
from chronik.console.registry.models import RegistryErrorBody
from chronik.console.rest.errors import RestError, to_rest_error
from chronik.errors import ChronikError
from chronik.registry.errors import RegistryError

CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"


class RequestError(RegistryError):
    """A request that is malformed or whose path does not exist. The error code is the HTTP status."""

    def __init__(self, status: HTTPStatus, message: str | None = None) -> None:
        super().__init__(message or f"HTTP {status.value} {status.phrase}")
        self.status = self.error_code = status.value  # type: ignore[misc]


class MethodNotAllowedError(RequestError):
    """A request for an existing path with a method that it does not support."""

    def __init__(self, allowed: list[str]) -> None:
        super().__init__(HTTPStatus.METHOD_NOT_ALLOWED)
        self.allowed = ", ".join(allowed)


class QuotaExceededError(RegistryError):
    """The principal has exceeded its quota of changes."""

    error_code = 429


def to_registry_error(error: ChronikError | RestError) -> RegistryError:
    """Convert an error of another component to an error of the registry."""
    if isinstance(error, RegistryError):
        return error
    if not isinstance(error, RestError):
        error = to_rest_error(error)
    return RequestError(error.status, str(error))


def build_error_response(
    error: RegistryError, *headers: tuple[str, str], content_type: str = CONTENT_TYPE
) -> HttpResponse:
    """Return the HTTP response for an error."""
    body = msgspec.json.encode(RegistryErrorBody(error.error_code, error.message))
    return HttpResponse(HTTPStatus(error.status), content_type, body, headers=headers)
