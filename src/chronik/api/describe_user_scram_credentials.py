"""DescribeUserScramCredentials (API key 50): returns the SCRAM mechanisms and iterations of users, not their keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator

from chronik.admin.users import describe_user
from chronik.api.shared.context import RequestContext, Services
from chronik.metadata.image import Image
from chronik.protocol.error_responses import build_error_fields
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.describe_user_scram_credentials import (
    DescribedScramCredential,
    DescribedScramUser,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from chronik.request_reply import Reply


def handle(
    services: Services, request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> Reply[DescribeUserScramCredentialsResponse]:
    return Reply.from_steps(_describe_scram_users(services.image, request))


def _describe_scram_users(
    image: Image, request: DescribeUserScramCredentialsRequest
) -> Generator[None, None, DescribeUserScramCredentialsResponse]:
    """Describe the SCRAM credentials of the requested users, or of all users if the request names none."""
    response = DescribeUserScramCredentialsResponse()
    requested = Counter(user.name for user in request.users) if request.users else Counter(list(image.users.by_name))
    for name, count in requested.items():
        response.results.append(_describe_scram_user(image, name, count))
        yield
    return response


def _describe_scram_user(image: Image, name: str, count: int) -> DescribedScramUser:
    try:
        if count > 1:
            message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
            raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, message)
        found = describe_user(image, name)
    except KafkaError as error:
        return DescribedScramUser(user=name, **build_error_fields(error))
    infos = [DescribedScramCredential(mechanism=mechanism, iterations=iterations) for mechanism, iterations in found]
    return DescribedScramUser(user=name, credential_infos=infos)
