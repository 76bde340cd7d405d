from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronik.security.sasl.oauthbearer import REFUSED, OAuthBearerClient, OAuthBearerServer
from chronik.security.sasl.outcomes import Challenge, Failure, Success, TokenRefused, Validate, ValidToken

# RFC 7628, section 4.1
EXAMPLE = (
    b"n,a=user@example.com,\x01host=server.example.com\x01port=143\x01"
    b"auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg\x01\x01"
)


def test_server_handles_example_of_rfc_7628() -> None:
    machine = OAuthBearerServer()
    assert machine.step(EXAMPLE) == Validate("vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg")
    assert machine.validated(ValidToken("user@example.com", 5)) == Success("user@example.com", expires_ms=5)


def test_server_understands_message_of_client() -> None:
    client = OAuthBearerClient("a.b-c_.d")
    assert OAuthBearerServer().step(client.first()) == Validate("a.b-c_.d")
    assert client.step(b"") == Success("")


def test_rejected_token_is_reported_and_acknowledged() -> None:
    machine, client = OAuthBearerServer(), OAuthBearerClient("a.b.c")
    machine.step(client.first())
    rejected = machine.validated(TokenRefused("expired"))
    assert rejected == Challenge(REFUSED.encode(), "token rejected: expired")
    acknowledged = client.step(REFUSED.encode())
    assert acknowledged == Challenge(b"\x01")
    assert machine.step(b"\x01") == Failure("token rejected: expired", REFUSED)


def test_different_authorization_id_is_rejected() -> None:
    machine = OAuthBearerServer()
    machine.step(EXAMPLE)
    outcome = machine.validated(ValidToken("eve", 5))
    assert isinstance(outcome, Failure)
    assert outcome.told is not None
    assert "different from the token's principal name (eve)" in outcome.told


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
    assert isinstance(OAuthBearerServer().step(data), Failure)


def test_second_token_is_rejected() -> None:
    machine = OAuthBearerServer()
    machine.step(b"n,,\x01auth=Bearer abc\x01\x01")
    assert isinstance(machine.step(b"n,,\x01auth=Bearer abc\x01\x01"), Failure)


@given(st.binary(max_size=300))
def test_random_oauthbearer_messages_are_rejected(data: bytes) -> None:
    assert isinstance(OAuthBearerServer().step(data), Failure)
    assert "abc" not in repr(Validate("abc"))
