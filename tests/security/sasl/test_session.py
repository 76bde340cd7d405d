"""The SASL session state machine, without a connection."""

from __future__ import annotations

import pytest

from chronik.limits import SASL_MESSAGE_BYTES_MAX, UNAUTHENTICATED_FRAME_BYTES_MAX
from chronik.principals import Principal
from chronik.security.sasl.outcomes import SaslChallenge, SaslFailure, SaslOutcome, SaslSuccess
from chronik.security.sasl.session import REAUTHENTICATION_SECONDS_MIN, HandshakeResult, SaslSession


class ScriptedMachine:
    def __init__(self, *outcomes: SaslOutcome) -> None:
        self.outcomes = list(outcomes)

    def step(self, data: bytes) -> SaslOutcome:
        return self.outcomes.pop(0)


def session(*outcomes: SaslOutcome, lifetime_ms: int = 0) -> SaslSession:
    script = ScriptedMachine(*outcomes)
    return SaslSession(lambda: ("PLAIN", "OAUTHBEARER"), lambda _: script, lambda _: lifetime_ms)


def test_session_authenticates_after_last_message() -> None:
    sasl_session = session(SaslChallenge(b"more"), SaslSuccess("alice", b"done"))
    assert sasl_session.handshake("PLAIN", 1, 0.0) is HandshakeResult.ACCEPTED
    assert sasl_session.handshake("PLAIN", 1, 0.0) is HandshakeResult.UNEXPECTED
    assert sasl_session.process_outcome(sasl_session.step(b""), 0.0, 0).data == b"more"
    assert not sasl_session.is_authenticated
    assert sasl_session.process_outcome(sasl_session.step(b""), 0.0, 0).data == b"done"
    assert sasl_session.principal == Principal("User", "alice")
    assert sasl_session.machine is None
    assert not sasl_session.is_expired(1e9)
    assert isinstance(sasl_session.step(b""), SaslFailure)


@pytest.mark.parametrize(
    ("mechanism", "longest"), [("PLAIN", SASL_MESSAGE_BYTES_MAX), ("OAUTHBEARER", UNAUTHENTICATED_FRAME_BYTES_MAX)]
)
def test_message_size_is_limited_also_for_reauthentication(mechanism: str, longest: int) -> None:
    sasl_session = session(*[SaslSuccess("alice")] * 3, lifetime_ms=60_000)
    for now in (0.0, 10.0):
        assert sasl_session.handshake(mechanism, 1, now) is HandshakeResult.ACCEPTED
        rejected = sasl_session.step(bytes(longest + 1))
        assert isinstance(rejected, SaslFailure)
        assert f"{longest + 1} bytes" in rejected.reason
        assert sasl_session.process_outcome(sasl_session.step(bytes(longest)), now, 0).error is None


@pytest.mark.parametrize(
    ("expires_ms", "lifetime_ms", "expected_ms"),
    [(None, 0, 0), (None, 5000, 5000), (12_000, 0, 2000), (12_000, 5000, 2000), (90_000, 5000, 5000)],
)
def test_session_lifetime_is_minimum_of_credentials_and_config(
    expires_ms: int | None, lifetime_ms: int, expected_ms: int
) -> None:
    sasl_session = session(SaslSuccess("alice", expires_ms=expires_ms), lifetime_ms=lifetime_ms)
    sasl_session.handshake("PLAIN", 1, 100.0)
    assert sasl_session.process_outcome(sasl_session.step(b""), 100.0, 10_000).lifetime_ms == expected_ms
    assert sasl_session.expires_at == (100.0 + expected_ms / 1000 if expected_ms else None)
    if expected_ms:
        assert not sasl_session.is_expired(100.0 + expected_ms / 1000)
        assert sasl_session.is_expired(100.1 + expected_ms / 1000)


def test_expired_credentials_are_rejected() -> None:
    sasl_session = session(SaslSuccess("alice", expires_ms=10_000))
    sasl_session.handshake("PLAIN", 1, 0.0)
    assert sasl_session.process_outcome(sasl_session.step(b""), 0.0, 10_000).error is not None
    assert not sasl_session.is_authenticated


def test_reauthentication_rate_is_limited() -> None:
    sasl_session = session(*[SaslSuccess("alice")] * 3, lifetime_ms=60_000)
    sasl_session.handshake("PLAIN", 1, 0.0)
    sasl_session.process_outcome(sasl_session.step(b""), 0.0, 0)
    assert sasl_session.handshake("PLAIN", 1, 1.0) is HandshakeResult.ACCEPTED
    assert sasl_session.process_outcome(sasl_session.step(b""), 1.0, 0).error is None
    assert sasl_session.handshake("PLAIN", 1, 1.0 + REAUTHENTICATION_SECONDS_MIN - 0.01) is HandshakeResult.UNEXPECTED
    assert sasl_session.handshake("PLAIN", 1, 1.0 + REAUTHENTICATION_SECONDS_MIN) is HandshakeResult.ACCEPTED


def test_error_message_to_client_omits_the_reason() -> None:
    sasl_session = session(SaslFailure("wrong password", user="x" * 1000))
    sasl_session.handshake("PLAIN", 1, 0.0)
    answer = sasl_session.process_outcome(sasl_session.step(b""), 0.0, 0)
    assert answer.error == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism PLAIN"
    )
    assert answer.rejection_reason.endswith("failed: wrong password")
    assert len(answer.rejection_reason) < 300


def test_version_0_handshake_expects_bare_messages_until_authenticated() -> None:
    sasl_session = session(SaslSuccess("alice"))
    sasl_session.handshake("PLAIN", 0, 0.0)
    assert sasl_session.expects_bare_messages
    sasl_session.process_outcome(sasl_session.step(b""), 0.0, 0)
    assert not sasl_session.expects_bare_messages


def test_handshake_with_disabled_mechanism_is_unsupported() -> None:
    assert session().handshake("SCRAM-SHA-256", 1, 0.0) is HandshakeResult.UNSUPPORTED
