"""SASL, ACLs, quotas and SCRAM: what a Kafka 4.3 that has none of them set up answers, here too."""

from __future__ import annotations

import pytest

from chronik.protocol.apis import KAFKA_APIS
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from chronik.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from chronik.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from chronik.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from chronik.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    QuotaComponent,
)
from chronik.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    ScramUser,
)
from chronik.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from chronik.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.raw import RawClient

NOT_BUILT = {
    38: "CreateDelegationToken",
}

EXACT, DEFAULT, SPECIFIED = range(3)


@pytest.mark.parametrize("version", [0, 1])
def test_there_is_no_mechanism_to_agree_on(client: RawClient, version: int) -> None:
    answer = client.ask(SaslHandshakeRequest(mechanism="PLAIN"), version, SaslHandshakeResponse)
    assert answer == SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_nobody_has_to_say_who_it_is(client: RawClient, version: int) -> None:
    answer = client.ask(SaslAuthenticateRequest(auth_bytes=b"\0user\0secret"), version, SaslAuthenticateResponse)
    assert answer == SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )
    assert client.ask(ApiVersionsRequest(), 0, ApiVersionsResponse).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_without_an_authorizer_there_are_no_acls(client: RawClient, version: int) -> None:
    described = client.ask(DescribeAclsRequest(), version, DescribeAclsResponse)
    assert described == DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
    )
    made = client.ask(CreateAclsRequest(creations=[AclCreation(), AclCreation()]), version, CreateAclsResponse)
    assert [(each.error_code, each.error_message) for each in made.results] == [
        (ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    ] * 2
    gone = client.ask(DeleteAclsRequest(filters=[DeleteAclsFilter()]), version, DeleteAclsResponse)
    assert [(each.error_code, each.matching_acls) for each in gone.filter_results] == [
        (ErrorCode.SECURITY_DISABLED, [])
    ]


def components(*kinds: str) -> list[QuotaComponent]:
    return [QuotaComponent(entity_type=kind, match_type=SPECIFIED, match=None) for kind in kinds]


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    "asked",
    [
        [],
        components("user", "client-id"),
        components("ip"),
        [QuotaComponent(entity_type="user", match_type=EXACT, match="me")],
        [QuotaComponent(entity_type="user", match_type=DEFAULT, match=None)],
    ],
)
def test_no_quota_is_set_for_anybody(client: RawClient, version: int, asked: list[QuotaComponent]) -> None:
    request = DescribeClientQuotasRequest(components=asked)
    assert client.ask(request, version, DescribeClientQuotasResponse) == DescribeClientQuotasResponse(entries=[])


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (components(""), ErrorCode.INVALID_REQUEST),
        (components("user", "user"), ErrorCode.INVALID_REQUEST),
        (components("user", "ip"), ErrorCode.INVALID_REQUEST),
        (components("colour"), ErrorCode.UNSUPPORTED_VERSION),
        ([QuotaComponent(entity_type="user", match_type=7, match=None)], ErrorCode.INVALID_REQUEST),
        ([QuotaComponent(entity_type="user", match_type=EXACT, match=None)], ErrorCode.INVALID_REQUEST),
        ([QuotaComponent(entity_type="user", match_type=SPECIFIED, match="me")], ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_question_about_quotas_must_make_sense(
    client: RawClient, asked: list[QuotaComponent], code: ErrorCode
) -> None:
    answer = client.ask(DescribeClientQuotasRequest(components=asked), 1, DescribeClientQuotasResponse)
    assert (answer.error_code, answer.entries) == (code, None)


@pytest.mark.parametrize("users", [None, []])
def test_no_user_has_scram_credentials(client: RawClient, users: list[ScramUser] | None) -> None:
    request = DescribeUserScramCredentialsRequest(users=users)
    assert client.ask(request, 0, DescribeUserScramCredentialsResponse) == DescribeUserScramCredentialsResponse()


def test_a_user_who_is_asked_for_is_not_there(client: RawClient) -> None:
    asked = DescribeUserScramCredentialsRequest(users=[ScramUser(name=name) for name in ("a", "b", "a")])
    answer = client.ask(asked, 0, DescribeUserScramCredentialsResponse)
    assert {each.user: each.error_code for each in answer.results} == {
        "a": ErrorCode.DUPLICATE_RESOURCE,
        "b": ErrorCode.RESOURCE_NOT_FOUND,
    }


def test_what_is_not_built_is_not_offered(client: RawClient) -> None:
    offered = {each.api_key for each in client.ask(ApiVersionsRequest(), 0, ApiVersionsResponse).api_keys}
    assert offered == set(KAFKA_APIS)
    assert not offered & set(NOT_BUILT)
