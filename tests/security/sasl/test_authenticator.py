"""Authenticator: responses to rejected credentials are delayed, and rejections are logged."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, cast

import pytest

from chronik.clock import SystemClock
from chronik.exchange import Peer
from chronik.security.sasl.authenticator import Authenticator
from chronik.security.sasl.oauthbearer import REFUSED, OAuthBearerClient
from chronik.security.sasl.outcomes import OAUTHBEARER, TokenRefused, ValidToken

DELAY_MS = 100


def reject(token: str) -> ValidToken:
    raise TokenRefused("expired")


def test_rejected_token_response_is_delayed_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def send_token() -> tuple[bytes, float]:
        authenticator = Authenticator(cast(Any, None), SystemClock(), lambda: DELAY_MS, reject)
        session = authenticator.session(lambda: (OAUTHBEARER,), lambda mechanism: 0)
        session.handshake(OAUTHBEARER, 1, authenticator.monotonic())
        began = time.monotonic()
        answer = await authenticator.answer(session, Peer("192.0.2.1", 4711, 1), OAuthBearerClient("a.b.c").first())
        authenticator.close()
        assert answer.error is None, "RFC 7628: the client must acknowledge the rejection"
        return answer.data, time.monotonic() - began

    with caplog.at_level(logging.INFO, "chronik.security"):
        data, seconds = asyncio.run(send_token())
    assert data == REFUSED.encode()
    assert seconds >= DELAY_MS / 1000
    assert "192.0.2.1:4711: authentication with OAUTHBEARER failed: token rejected: expired" in caplog.text
    assert "a.b.c" not in caplog.text
