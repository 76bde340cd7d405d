"""SASL, ACL, quota and SCRAM APIs on a node without security answer as Kafka 4.3 does."""

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

UNSUPPORTED_APIS = {
    38: "CreateDelegationToken",
}

EXACT, DEFAULT, SPECIFIED = range(3)


@pytest.mark.parametrize("version", [0, 1])
def test_sasl_handshake_without_sasl_returns_illegal_state(client: RawClient, version: int) -> None:
    answer = client.request(SaslHandshakeRequest(mechanism="PLAIN"), version, SaslHandshakeResponse)
    assert answer == SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_sasl_authenticate_without_sasl_returns_illegal_state(client: RawClient, version: int) -> None:
    answer = client.request(SaslAuthenticateRequest(auth_bytes=b"\0user\0secret"), version, SaslAuthenticateResponse)
    assert answer == SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )
    assert client.request(ApiVersionsRequest(), 0, ApiVersionsResponse).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_acl_apis_without_authorizer_return_security_disabled(client: RawClient, version: int) -> None:
    described = client.request(DescribeAclsRequest(), version, DescribeAclsResponse)
    assert described == DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
    )
    made = client.request(CreateAclsRequest(creations=[AclCreation(), AclCreation()]), version, CreateAclsResponse)
    assert [(each.error_code, each.error_message) for each in made.results] == [
        (ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    ] * 2
    gone = client.request(DeleteAclsRequest(filters=[DeleteAclsFilter()]), version, DeleteAclsResponse)
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
def test_describe_client_quotas_is_empty_by_default(
    client: RawClient, version: int, asked: list[QuotaComponent]
) -> None:
    request = DescribeClientQuotasRequest(components=asked)
    assert client.request(request, version, DescribeClientQuotasResponse) == DescribeClientQuotasResponse(entries=[])


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
def test_invalid_quota_filter_is_rejected(client: RawClient, asked: list[QuotaComponent], code: ErrorCode) -> None:
    answer = client.request(DescribeClientQuotasRequest(components=asked), 1, DescribeClientQuotasResponse)
    assert (answer.error_code, answer.entries) == (code, None)


@pytest.mark.parametrize("users", [None, []])
def test_describe_scram_credentials_is_empty_by_default(client: RawClient, users: list[ScramUser] | None) -> None:
    request = DescribeUserScramCredentialsRequest(users=users)
    assert client.request(request, 0, DescribeUserScramCredentialsResponse) == DescribeUserScramCredentialsResponse()


def test_describe_scram_credentials_rejects_unknown_and_duplicate_users(client: RawClient) -> None:
    asked = DescribeUserScramCredentialsRequest(users=[ScramUser(name=name) for name in ("a", "b", "a")])
    answer = client.request(asked, 0, DescribeUserScramCredentialsResponse)
    assert {each.user: each.error_code for each in answer.results} == {
        "a": ErrorCode.DUPLICATE_RESOURCE,
        "b": ErrorCode.RESOURCE_NOT_FOUND,
    }


def test_api_versions_omits_unsupported_apis(client: RawClient) -> None:
    supported = {each.api_key for each in client.request(ApiVersionsRequest(), 0, ApiVersionsResponse).api_keys}
    assert supported == set(KAFKA_APIS)
    assert not supported & set(UNSUPPORTED_APIS)
