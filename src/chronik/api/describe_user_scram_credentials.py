"""DescribeUserScramCredentials: no user has any, since there is no SCRAM here.

Missing: AlterUserScramCredentials, which is not among the APIs of this node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Generator

from chronik.api.shared.context import Context, Services
from chronik.api.shared.long_answers import Long, at_once_or_in_slices
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.describe_user_scram_credentials import (
    DescribedScramUser,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)


def handle(
    services: Services, request: DescribeUserScramCredentialsRequest, context: Context
) -> DescribeUserScramCredentialsResponse | Awaitable[Long]:
    return at_once_or_in_slices(_answer(request))


def _answer(
    request: DescribeUserScramCredentialsRequest,
) -> Generator[None, None, DescribeUserScramCredentialsResponse]:
    response = DescribeUserScramCredentialsResponse()
    asked = Counter(user.name for user in request.users or ())
    for name, times in asked.items():
        response.results.append(_unknown(name, times))
        yield
    return response


def _unknown(name: str, times: int) -> DescribedScramUser:
    if times > 1:
        told = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        return DescribedScramUser(user=name, error_code=ErrorCode.DUPLICATE_RESOURCE, error_message=told)
    told = f"Attempt to describe a user credential that does not exist: {name}"
    return DescribedScramUser(user=name, error_code=ErrorCode.RESOURCE_NOT_FOUND, error_message=told)
