from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronik.security.sasl.oauthbearer import INVALID_TOKEN_RESPONSE, OAuthBearerClient, OAuthBearerServer
from chronik.security.sasl.outcomes import (
    InvalidToken,
    SaslChallenge,
    SaslFailure,
    SaslSuccess,
    ValidateToken,
    ValidToken,
)

# RFC 7628, section 4.1
EXAMPLE = (
    b"n,a=user@example.com,\x01host=server.example.com\x01port=143\x01"
    b"auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg\x01\x01"
)


def test_server_handles_example_of_rfc_7628() -> None:
    machine = OAuthBearerServer()
    assert machine.step(EXAMPLE) == ValidateToken("vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg")
    assert machine.continue_with_token(ValidToken("user@example.com", 5)) == SaslSuccess(
        "user@example.com", expires_ms=5
    )


def test_server_understands_message_of_client() -> None:
    client = OAuthBearerClient("a.b-c_.d")
    assert OAuthBearerServer().step(client.initial_message()) == ValidateToken("a.b-c_.d")
    assert client.step(b"") == SaslSuccess("")


def test_rejected_token_is_reported_and_acknowledged() -> None:
    machine, client = OAuthBearerServer(), OAuthBearerClient("a.b.c")
    machine.step(client.initial_message())
    rejected = machine.continue_with_token(InvalidToken("expired"))
    assert rejected == SaslChallenge(INVALID_TOKEN_RESPONSE.encode(), "token rejected: expired")
    acknowledged = client.step(INVALID_TOKEN_RESPONSE.encode())
    assert acknowledged == SaslChallenge(b"\x01")
    assert machine.step(b"\x01") == SaslFailure("token rejected: expired", INVALID_TOKEN_RESPONSE)


def test_different_authorization_id_is_rejected() -> None:
    machine = OAuthBearerServer()
    machine.step(EXAMPLE)
    outcome = machine.continue_with_token(ValidToken("eve", 5))
    assert isinstance(outcome, SaslFailure)
    assert outcome.client_message is not None
    assert "different from the token's principal name (eve)" in outcome.client_message


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Bearer abc\x01auth=Bearer abc\x01\x01",
        b"n,,\x01auth=Bearer abc\x01",
        b"y,,\x01auth=Bearer abc\x01\x01",
        b"n,a=\xff,\x01auth=Bearer abc\x01\x01",
        b"n,,\x01auth=Bearer abc\x01\x01\x01",
    ],
)
def test_malformed_oauthbearer_message_is_rejected(data: bytes) -> None:
    assert isinstance(OAuthBearerServer().step(data), SaslFailure)


def test_second_token_is_rejected() -> None:
    machine = OAuthBearerServer()
    machine.step(b"n,,\x01auth=Bearer abc\x01\x01")
    assert isinstance(machine.step(b"n,,\x01auth=Bearer abc\x01\x01"), SaslFailure)


@given(st.binary(max_size=300))
def test_random_oauthbearer_messages_are_rejected(data: bytes) -> None:
    assert isinstance(OAuthBearerServer().step(data), SaslFailure)
    assert "abc" not in repr(ValidateToken("abc"))
