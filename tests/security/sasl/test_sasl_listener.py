"""A node with a SASL listener: successful and failed authentication, and unauthenticated requests."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from chronik import limits
from chronik.errors import ConfigError
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from chronik.protocol.messages.metadata import MetadataRequest, MetadataResponse
from chronik.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from chronik.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from chronik.testing import Broker
from chronik.testing.control import BrokerFailed
from tests.raw import RawClient
from tests.security.sasl.sasl_broker import ALL_MECHANISMS, SaslBroker, authenticate, authenticate_with_bare_messages

pytestmark = pytest.mark.slow

MECHANISMS = ALL_MECHANISMS.split(",")
PASSWORD = "correct horse battery staple"


@pytest.fixture(scope="module")
def broker() -> Iterator[SaslBroker]:
    with SaslBroker() as running:
        assert isinstance(running, SaslBroker)
        running.add_user("alice", PASSWORD)
        running.add_user("bob", "another")
        yield running


@pytest.fixture
def client(broker: SaslBroker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap) as raw:
        yield raw


def is_served(client: RawClient) -> bool:
    return client.request(MetadataRequest(topics=[]), 1, MetadataResponse).brokers != []


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("version", [0, 1, 2])
def test_correct_password_authenticates(client: RawClient, mechanism: str, version: int) -> None:
    answer = authenticate(client, mechanism, "alice", PASSWORD, version)
    assert (answer.error_code, answer.session_lifetime_ms) == (ErrorCode.NONE, 0)
    assert is_served(client)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_version_0_handshake_authenticates_with_bare_messages(client: RawClient, mechanism: str) -> None:
    assert authenticate_with_bare_messages(client, mechanism, "alice", PASSWORD) is not None
    assert is_served(client)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [("alice", "another"), ("nobody", PASSWORD)])
def test_wrong_password_or_unknown_user_is_rejected_and_disconnected(
    broker: SaslBroker, client: RawClient, mechanism: str, user: str, password: str
) -> None:
    began = time.monotonic()
    answer = authenticate(client, mechanism, user, password)
    assert time.monotonic() - began >= 0.1, "the error response was not delayed"
    expected = {"PLAIN": "Authentication failed: Invalid username or password"}.get(
        mechanism,
        f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}",
    )
    assert (answer.error_code, answer.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, expected)
    assert client.wait_for_close()
    assert f"authentication with {mechanism} as '{user}' failed: wrong password or unknown user" in broker.log
    with RawClient(broker.bootstrap) as another:
        assert authenticate_with_bare_messages(another, mechanism, user, password) is None


def test_passwords_are_not_logged(broker: SaslBroker) -> None:
    assert PASSWORD not in broker.log
    assert "another" not in broker.log


def test_api_versions_and_handshake_are_allowed_before_authentication(client: RawClient) -> None:
    offered = client.request(ApiVersionsRequest(), 0, ApiVersionsResponse)
    assert {17, 36} <= {each.api_key for each in offered.api_keys}
    handshake = client.request(SaslHandshakeRequest(mechanism="PLAIN"), 1, SaslHandshakeResponse)
    assert handshake == SaslHandshakeResponse(mechanisms=MECHANISMS)


def test_other_request_before_authentication_disconnects(broker: SaslBroker, client: RawClient) -> None:
    client.send(MetadataRequest(topics=None), 1)
    assert client.wait_for_close()
    assert "closed: Metadata request before authentication" in broker.log


@pytest.mark.parametrize("frame", [b"\0", b"\xff" * 8, b"\0\x24\0\0" + b"\xff" * 60, b"GET / HTTP/1.1\r\n\r\n" * 9])
def test_malformed_frame_disconnects(client: RawClient, frame: bytes) -> None:
    client.send_frame(frame)
    assert client.wait_for_close()


def test_authenticate_before_handshake_returns_illegal_sasl_state(client: RawClient) -> None:
    early = client.request(SaslAuthenticateRequest(auth_bytes=b"\0alice\0x"), 2, SaslAuthenticateResponse)
    assert early.error_code == ErrorCode.ILLEGAL_SASL_STATE
    client.send(MetadataRequest(topics=None), 1)
    assert client.wait_for_close()


def test_disabled_mechanism_is_rejected(broker: SaslBroker, client: RawClient) -> None:
    answer = client.request(SaslHandshakeRequest(mechanism="GSSAPI"), 1, SaslHandshakeResponse)
    assert answer == SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=MECHANISMS)
    assert client.wait_for_close()
    assert "unsupported SASL mechanism 'GSSAPI'; enabled: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512" in broker.log


def test_reauthentication_of_unlimited_session_returns_illegal_sasl_state(client: RawClient) -> None:
    authenticate(client, "PLAIN", "alice", PASSWORD)
    again = client.request(SaslHandshakeRequest(mechanism="PLAIN"), 1, SaslHandshakeResponse)
    assert again.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert is_served(client)


def test_request_size_is_limited_before_authentication(broker: SaslBroker) -> None:
    with RawClient(broker.bootstrap) as client:
        client.send_frame(b"\0\x12\0\0" + bytes(limits.UNAUTHENTICATED_FRAME_BYTES_MAX + 1 - 4))
        assert client.wait_for_close()
    expected = f"invalid request size: {limits.UNAUTHENTICATED_FRAME_BYTES_MAX + 1} bytes"
    assert expected in broker.log
    with RawClient(broker.bootstrap) as client:
        client.request(SaslHandshakeRequest(mechanism="PLAIN"), 1, SaslHandshakeResponse)
        longest = SaslAuthenticateRequest(auth_bytes=bytes(limits.UNAUTHENTICATED_FRAME_BYTES_MAX - 100))
        assert client.request(longest, 0, SaslAuthenticateResponse).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    with RawClient(broker.bootstrap) as client:
        authenticate(client, "SCRAM-SHA-256", "alice", PASSWORD)
        client.send(MetadataRequest(topics=[]), 1)
        client.client_id = "x" * 30_000
        assert is_served(client)
        client.send_frame(b"\0\x03\0\1\0\0\0\1\0\0\0\0\0\0" + bytes(limits.UNAUTHENTICATED_FRAME_BYTES_MAX))
        assert client.read_frame() is not None


def test_silent_client_is_disconnected_after_authentication_timeout(broker: SaslBroker) -> None:
    with RawClient(broker.bootstrap) as client:
        client.socket.settimeout(limits.AUTHENTICATION_SECONDS_MAX + 5)
        began = time.monotonic()
        assert client.wait_for_close()
        assert time.monotonic() - began > limits.AUTHENTICATION_SECONDS_MAX - 1
    assert f"authentication not completed within {limits.AUTHENTICATION_SECONDS_MAX:g} s" in broker.log


def test_listener_without_sasl_needs_no_authentication(broker: SaslBroker) -> None:
    with RawClient(broker.open_bootstrap) as client:
        assert is_served(client)
        answer = client.request(SaslHandshakeRequest(mechanism="PLAIN"), 1, SaslHandshakeResponse)
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_unknown_users_get_same_kind_of_scram_response(broker: SaslBroker) -> None:
    """The salt of an unknown user is always the same, and as long as that of some known user."""

    def first_answer(user: str) -> bytes:
        with RawClient(broker.bootstrap) as client:
            client.request(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1, SaslHandshakeResponse)
            message = b"n,,n=%b,r=abc" % user.encode()
            answer = client.request(SaslAuthenticateRequest(auth_bytes=message), 2, SaslAuthenticateResponse)
            assert answer.error_code == ErrorCode.NONE
            return bytes(answer.auth_bytes).partition(b",s=")[2]

    assert first_answer("nobody") == first_answer("nobody") != first_answer("noone1")
    known = {len(first_answer(user)) for user in ("alice", "bob")}
    assert {len(first_answer(f"nobody{number}")) for number in range(20)} == known


class ShortLived(SaslBroker):
    def __init__(self) -> None:
        super().__init__(**{"connections.max.reauth.ms": 1500})


def test_session_is_reauthenticated_or_expires() -> None:
    with ShortLived() as broker, RawClient(broker.bootstrap) as client:
        assert isinstance(broker, ShortLived)
        broker.add_user("alice", PASSWORD)
        broker.add_user("bob", PASSWORD)
        began = time.monotonic()
        assert authenticate(client, "SCRAM-SHA-256", "alice", PASSWORD).session_lifetime_ms == 1500
        while time.monotonic() - began < 3:
            assert is_served(client)
            if time.monotonic() - began > 1.2:
                again = authenticate(client, "SCRAM-SHA-256", "alice", PASSWORD)
                assert (again.error_code, again.session_lifetime_ms) == (ErrorCode.NONE, 1500)
                assert is_served(client)
                break
        with RawClient(broker.bootstrap) as other:
            authenticate(other, "SCRAM-SHA-256", "alice", PASSWORD)
            changed = authenticate(other, "SCRAM-SHA-256", "bob", PASSWORD)
            assert changed.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            expected = "Cannot change principals during re-authentication from User.alice: User.bob"
            assert changed.error_message == expected
            assert other.wait_for_close()
        with RawClient(broker.bootstrap) as other:
            authenticate(other, "SCRAM-SHA-256", "alice", PASSWORD)
            changed = authenticate(other, "PLAIN", "alice", PASSWORD)
            assert "is not supported for re-authentication" in (changed.error_message or "")
        began = time.monotonic()
        while time.monotonic() - began < 10:
            client.send(MetadataRequest(topics=[]), 1)
            if client.read_frame() is None:
                break
        assert "session of User:alice expired without reauthentication" in broker.log


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "expected one or more of PLAIN, SCRAM-SHA-256"),
        ({"sasl.enabled.mechanisms": "PLAIN,CRAM-MD5"}, "expected one or more of PLAIN, SCRAM-SHA-256"),
        ({"listener.name.sasl_plaintext.sasl.enabled.mechanisms": "GSSAPI"}, "listener.name.sasl_plaintext.sasl"),
        ({"sasl.enabled.mechanisms": "OAUTHBEARER"}, "sasl.oauthbearer.jwks.endpoint.url: expected"),
        (
            {"sasl.enabled.mechanisms": "OAUTHBEARER", "sasl.oauthbearer.jwks.endpoint.url": "ftp://x"},
            "expected a URL that starts with file://",
        ),
        ({"listener.name.sasl_plaintext.plain.connections.max.reauth.ms": "soon"}, "plain.connections.max.reauth.ms"),
    ],
)
def test_invalid_sasl_config_fails_start(configs: dict[str, str], expected: str) -> None:
    with pytest.raises((BrokerFailed, ConfigError)) as raised, SaslBroker(**configs):
        pass
    assert expected in str(raised.value)


def test_listener_specific_mechanisms_are_offered() -> None:
    with SaslBroker(**{"listener.name.sasl_plaintext.sasl.enabled.mechanisms": "SCRAM-SHA-512"}) as broker:
        with RawClient(broker.bootstrap) as client:
            answer = client.request(SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 1, SaslHandshakeResponse)
        assert answer == SaslHandshakeResponse(mechanisms=["SCRAM-SHA-512"])


def test_users_survive_crash(broker: SaslBroker) -> None:
    broker.add_user("carol", PASSWORD)
    broker.kill()
    broker.start()
    assert isinstance(broker, Broker)
    with RawClient(broker.bootstrap) as client:
        assert authenticate(client, "SCRAM-SHA-512", "carol", PASSWORD).error_code == ErrorCode.NONE
