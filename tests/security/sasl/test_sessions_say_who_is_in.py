"""The machine of a connection that says who it is, without a connection."""

from __future__ import annotations

import pytest

from chronik.limits import LOGIN_BYTES_MAX, UNAUTHENTICATED_FRAME_BYTES_MAX
from chronik.principals import Principal
from chronik.security.sasl.outcomes import Challenge, Failure, Outcome, Success
from chronik.security.sasl.session import REAUTHENTICATION_SECONDS_MIN, Handshake, Session


class Scripted:
    def __init__(self, *outcomes: Outcome) -> None:
        self.outcomes = list(outcomes)

    def step(self, data: bytes) -> Outcome:
        return self.outcomes.pop(0)


def session(*outcomes: Outcome, lifetime_ms: int = 0) -> Session:
    script = Scripted(*outcomes)
    return Session(lambda: ("PLAIN", "OAUTHBEARER"), lambda _: script, lambda _: lifetime_ms)


def test_who_has_said_it_is_in() -> None:
    made = session(Challenge(b"more"), Success("alice", b"done"))
    assert made.handshake("PLAIN", 1, 0.0) is Handshake.TAKEN
    assert made.handshake("PLAIN", 1, 0.0) is Handshake.OUT_OF_PLACE
    assert made.settle(made.step(b""), 0.0, 0).data == b"more"
    assert not made.is_let_in
    assert made.settle(made.step(b""), 0.0, 0).data == b"done"
    assert made.principal == Principal("User", "alice")
    assert made.machine is None
    assert not made.is_expired(1e9)
    assert isinstance(made.step(b""), Failure)


@pytest.mark.parametrize(
    ("mechanism", "longest"), [("PLAIN", LOGIN_BYTES_MAX), ("OAUTHBEARER", UNAUTHENTICATED_FRAME_BYTES_MAX)]
)
def test_a_message_is_so_long_and_no_longer_also_of_who_comes_again(mechanism: str, longest: int) -> None:
    made = session(*[Success("alice")] * 3, lifetime_ms=60_000)
    for now in (0.0, 10.0):
        assert made.handshake(mechanism, 1, now) is Handshake.TAKEN
        refused = made.step(bytes(longest + 1))
        assert isinstance(refused, Failure)
        assert f"{longest + 1} bytes" in refused.why
        assert made.settle(made.step(bytes(longest)), now, 0).error is None


@pytest.mark.parametrize(
    ("expires_ms", "lifetime_ms", "told"),
    [(None, 0, 0), (None, 5000, 5000), (12_000, 0, 2000), (12_000, 5000, 2000), (90_000, 5000, 5000)],
)
def test_a_session_ends_with_the_first_that_ends(expires_ms: int | None, lifetime_ms: int, told: int) -> None:
    made = session(Success("alice", expires_ms=expires_ms), lifetime_ms=lifetime_ms)
    made.handshake("PLAIN", 1, 100.0)
    assert made.settle(made.step(b""), 100.0, 10_000).lifetime_ms == told
    assert made.expires_at == (100.0 + told / 1000 if told else None)
    if told:
        assert not made.is_expired(100.0 + told / 1000)
        assert made.is_expired(100.1 + told / 1000)


def test_what_has_expired_lets_nobody_in() -> None:
    made = session(Success("alice", expires_ms=10_000))
    made.handshake("PLAIN", 1, 0.0)
    assert made.settle(made.step(b""), 0.0, 10_000).error is not None
    assert not made.is_let_in


def test_it_is_said_again_once_in_a_second() -> None:
    made = session(*[Success("alice")] * 3, lifetime_ms=60_000)
    made.handshake("PLAIN", 1, 0.0)
    made.settle(made.step(b""), 0.0, 0)
    assert made.handshake("PLAIN", 1, 1.0) is Handshake.TAKEN
    assert made.settle(made.step(b""), 1.0, 0).error is None
    assert made.handshake("PLAIN", 1, 1.0 + REAUTHENTICATION_SECONDS_MIN - 0.01) is Handshake.OUT_OF_PLACE
    assert made.handshake("PLAIN", 1, 1.0 + REAUTHENTICATION_SECONDS_MIN) is Handshake.TAKEN


def test_a_failure_is_told_without_its_reason() -> None:
    made = session(Failure("it is wrong", user="x" * 1000))
    made.handshake("PLAIN", 1, 0.0)
    answer = made.settle(made.step(b""), 0.0, 0)
    assert answer.error == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism PLAIN"
    )
    assert answer.why.endswith("failed: it is wrong")
    assert len(answer.why) < 300


def test_bare_messages_follow_a_handshake_of_version_0_until_it_is_done() -> None:
    made = session(Success("alice"))
    made.handshake("PLAIN", 0, 0.0)
    assert made.expects_tokens
    made.settle(made.step(b""), 0.0, 0)
    assert not made.expects_tokens


def test_only_what_is_enabled_is_agreed_on() -> None:
    assert session().handshake("SCRAM-SHA-256", 1, 0.0) is Handshake.UNSUPPORTED
