"""SCRAM messages need no thread: valid ones are answered in the same event-loop iteration, failures after a delay."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from chronik.clock import ManualClock
from chronik.request_reply import ConnectedClient
from chronik.security.sasl.authenticator import Authenticator
from chronik.security.sasl.outcomes import HashPassword, SaslChallenge
from chronik.security.sasl.scram import ScramClient
from chronik.security.sasl.scram_keys import MECHANISMS_BY_NAME, ScramKeySet, ScramMechanism, derive_keys, salt_password
from chronik.security.sasl.session import SaslResponse, SaslSession

SCRAM = MECHANISMS_BY_NAME["SCRAM-SHA-512"]
PEER = ConnectedClient("127.0.0.1", 1, 1)
DELAY_MS = 20


class Alice:
    def keys(self, scram: ScramMechanism, _user: str) -> tuple[ScramKeySet, bool]:
        return derive_keys(scram, salt_password(b"right", b"salt", 4096, scram.digest), b"salt", 4096), True


def start_session() -> tuple[Authenticator, SaslSession]:
    authenticator = Authenticator(cast(Any, Alice()), ManualClock(), lambda: DELAY_MS)
    session = authenticator.new_session(lambda: [SCRAM.name], lambda _: 0)
    session.handshake(SCRAM.name, 1, 0.0)
    return authenticator, session


def final_message(client: ScramClient, challenge: bytes) -> bytes:
    outcome = client.step(challenge)
    assert isinstance(outcome, HashPassword)
    answer = client.continue_with_hash(
        salt_password(outcome.password, outcome.salt, outcome.iterations, outcome.digest)
    )
    assert isinstance(answer, SaslChallenge)
    return answer.data


def test_valid_scram_messages_are_answered_immediately() -> None:
    authenticator, session = start_session()
    client = ScramClient(SCRAM, "alice", "right", "nonce")
    challenge = authenticator.respond_or_await(session, PEER, client.initial_message())
    assert isinstance(challenge, SaslResponse)
    assert challenge.error is None
    last = authenticator.respond_or_await(session, PEER, final_message(client, challenge.data))
    assert isinstance(last, SaslResponse)
    assert last.error is None
    assert session.is_authenticated


def test_wrong_scram_proof_is_answered_after_delay() -> None:
    async def scenario() -> None:
        authenticator, session = start_session()
        client = ScramClient(SCRAM, "alice", "wrong", "nonce")
        challenge = await authenticator.respond(session, PEER, client.initial_message())
        began = asyncio.get_running_loop().time()
        rejection = authenticator.respond_or_await(session, PEER, final_message(client, challenge.data))
        assert not isinstance(rejection, SaslResponse)
        assert (await rejection).error is not None
        assert asyncio.get_running_loop().time() - began >= DELAY_MS / 1000
        assert not session.is_authenticated

    asyncio.run(scenario())


def test_malformed_scram_message_is_answered_after_delay() -> None:
    authenticator, session = start_session()
    rejection = authenticator.respond_or_await(session, PEER, b"let me in")
    assert not isinstance(rejection, SaslResponse)
    assert asyncio.run(asyncio.wait_for(rejection, 20)).error is not None
