"""Authenticator: responses to rejected credentials are delayed, and rejections are logged."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, cast

import pytest

from chronik.clock import SystemClock
from chronik.limits import CONCURRENT_AUTHENTICATIONS_MAX
from chronik.request_reply import ConnectedClient
from chronik.security.sasl.authenticator import Authenticator
from chronik.security.sasl.oauthbearer import INVALID_TOKEN_RESPONSE, OAuthBearerClient
from chronik.security.sasl.outcomes import OAUTHBEARER, PLAIN, InvalidToken, ValidToken
from chronik.security.sasl.scram_keys import (
    ITERATIONS_MIN,
    MECHANISMS_BY_NAME,
    ScramKeySet,
    ScramMechanism,
    derive_keys,
    salt_password,
)

DELAY_MS = 100
SCRAM = MECHANISMS_BY_NAME["SCRAM-SHA-256"]
PASSWORD, SALT = b"correct", b"salt"


def reject(token: str) -> ValidToken:
    raise InvalidToken("expired")


def test_rejected_token_response_is_delayed_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def send_token() -> tuple[bytes, float]:
        authenticator = Authenticator(cast(Any, None), SystemClock(), lambda: DELAY_MS, reject)
        session = authenticator.new_session(lambda: (OAUTHBEARER,), lambda mechanism: 0)
        session.handshake(OAUTHBEARER, 1, authenticator.monotonic())
        began = time.monotonic()
        answer = await authenticator.respond(
            session, ConnectedClient("192.0.2.1", 4711, 1), OAuthBearerClient("a.b.c").initial_message()
        )
        authenticator.close()
        assert answer.error is None, "RFC 7628: the client must acknowledge the rejection"
        return answer.data, time.monotonic() - began

    with caplog.at_level(logging.INFO, "chronik.security"):
        data, seconds = asyncio.run(send_token())
    assert data == INVALID_TOKEN_RESPONSE.encode()
    assert seconds >= DELAY_MS / 1000
    assert "192.0.2.1:4711: authentication with OAUTHBEARER failed: token rejected: expired" in caplog.text
    assert "a.b.c" not in caplog.text


class SharedCredentials:
    """A credential store with the same password for every user."""

    def keys_of_any_mechanism(self, user: str) -> tuple[ScramMechanism, ScramKeySet, bool]:
        return (
            SCRAM,
            derive_keys(SCRAM, salt_password(PASSWORD, SALT, ITERATIONS_MIN, SCRAM.digest), SALT, ITERATIONS_MIN),
            True,
        )


def test_verified_user_is_checked_before_queued_guesses_of_other_networks() -> None:
    async def checks_before_alice() -> int:
        authenticator = Authenticator(cast(Any, SharedCredentials()), SystemClock(), lambda: 0)
        checked = 0

        async def log_in(host: str, password: bytes) -> None:
            nonlocal checked
            session = authenticator.new_session(lambda: (PLAIN,), lambda mechanism: 0)
            session.handshake(PLAIN, 1, authenticator.monotonic())
            answer = await authenticator.respond(session, ConnectedClient(host, 4711, 1), b"\0alice\0" + password)
            assert (answer.error is None) == (password == PASSWORD)
            checked += 1

        await log_in("192.0.2.1", PASSWORD)
        guesses = [asyncio.ensure_future(log_in(f"192.0.2.{2 + number}", b"guess")) for number in range(120)]
        await asyncio.sleep(0)
        checked = 0
        await log_in("192.0.2.1", PASSWORD)
        before = checked - 1
        await asyncio.gather(*guesses)
        authenticator.close()
        return before

    assert asyncio.run(checks_before_alice()) <= 2 * CONCURRENT_AUTHENTICATIONS_MAX
