"""Errors of admin API operations, and their HTTP status codes."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

import msgspec

from chronik.client.errors import ApiNotSupported, BrokerUnreachable, ClientError, ConnectionLost, RequestTimedOut
from chronik.console.http import HttpResponse
from chronik.console.rest.models.common import Error
from chronik.errors import ChronikError
from chronik.protocol.errors import ErrorCode, KafkaError

JSON: Final = "application/json"


class RestError(Exception):
    """An error response of an operation: HTTP status, message and optional Kafka error code."""

    def __init__(self, status: HTTPStatus, why: str, code: str | None = None) -> None:
        super().__init__(why)
        self.status = status
        self.code = code


_CODES: Final = {
    HTTPStatus.FORBIDDEN: (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
        ErrorCode.POLICY_VIOLATION,
    ),
    HTTPStatus.NOT_FOUND: (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.RESOURCE_NOT_FOUND,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.BROKER_ID_NOT_REGISTERED,
    ),
    HTTPStatus.CONFLICT: (
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.REASSIGNMENT_IN_PROGRESS,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.TOPIC_DELETION_DISABLED,
        ErrorCode.DUPLICATE_RESOURCE,
    ),
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE),
    HTTPStatus.TOO_MANY_REQUESTS: (ErrorCode.THROTTLING_QUOTA_EXCEEDED,),
    HTTPStatus.GATEWAY_TIMEOUT: (ErrorCode.REQUEST_TIMED_OUT,),
    HTTPStatus.NOT_IMPLEMENTED: (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.SECURITY_DISABLED),
    HTTPStatus.INTERNAL_SERVER_ERROR: (ErrorCode.UNKNOWN_SERVER_ERROR,),
}
_STATUS_OF: Final = {code: status for status, codes in _CODES.items() for code in codes}


def to_rest_error(error: ChronikError) -> RestError:
    """Convert an error of the client library to an error response."""
    if isinstance(error, KafkaError):
        status = _STATUS_OF.get(error.code)
        if status is None:
            status = HTTPStatus.SERVICE_UNAVAILABLE if error.code.retriable else HTTPStatus.BAD_REQUEST
        return RestError(status, error_message(error), error.code.name)
    if isinstance(error, ApiNotSupported):
        return RestError(HTTPStatus.NOT_IMPLEMENTED, str(error))
    if isinstance(error, RequestTimedOut):
        return RestError(HTTPStatus.GATEWAY_TIMEOUT, f"{error}; the operation may have been executed")
    if isinstance(error, ConnectionLost):
        return RestError(HTTPStatus.SERVICE_UNAVAILABLE, f"{error}; the operation may have been executed")
    if isinstance(error, BrokerUnreachable):
        return RestError(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
    if isinstance(error, ClientError):
        return RestError(HTTPStatus.BAD_REQUEST, str(error))
    return RestError(HTTPStatus.SERVICE_UNAVAILABLE, str(error))


def error_message(error: KafkaError) -> str:
    """Return the message of a Kafka error without its code, which is a separate field of the response."""
    return str(error).removeprefix(f"{error.code.name}: ")


def error_response(refusal: RestError, *headers: tuple[str, str]) -> HttpResponse:
    """Encode an error as an HTTP response."""
    body = msgspec.json.encode(Error(str(refusal), refusal.code)) + b"\n"
    return HttpResponse(refusal.status, JSON, body, headers=headers)
