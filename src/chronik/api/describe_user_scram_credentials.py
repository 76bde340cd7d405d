"""DescribeUserScramCredentials: by which mechanisms users have passwords, and nothing of those."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator

from chronik.admin.users import described
from chronik.api.shared.context import Context, Services
from chronik.exchange import Reply
from chronik.metadata.image import Image
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.failures import told
from chronik.protocol.messages.describe_user_scram_credentials import (
    DescribedScramUser,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    ScramCredential,
)


def handle(
    services: Services, request: DescribeUserScramCredentialsRequest, context: Context
) -> Reply[DescribeUserScramCredentialsResponse]:
    return Reply.of_steps(_answer(services.image, request))


def _answer(
    image: Image, request: DescribeUserScramCredentialsRequest
) -> Generator[None, None, DescribeUserScramCredentialsResponse]:
    """Without names, all users are told."""
    response = DescribeUserScramCredentialsResponse()
    asked = Counter(user.name for user in request.users) if request.users else Counter(list(image.users.by_name))
    for name, times in asked.items():
        response.results.append(_described(image, name, times))
        yield
    return response


def _described(image: Image, name: str, times: int) -> DescribedScramUser:
    try:
        if times > 1:
            twice = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
            raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, twice)
        found = described(image, name)
    except KafkaError as error:
        return DescribedScramUser(user=name, **told(error))
    infos = [ScramCredential(mechanism=mechanism, iterations=iterations) for mechanism, iterations in found]
    return DescribedScramUser(user=name, credential_infos=infos)
