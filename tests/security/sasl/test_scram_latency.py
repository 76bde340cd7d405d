"""SCRAM messages need no thread: valid ones are answered in the same event-loop iteration, failures after a delay."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from chronik.clock import ManualClock
from chronik.exchange import Peer
from chronik.security.sasl.authenticator import Authenticator
from chronik.security.sasl.outcomes import Challenge, Derive
from chronik.security.sasl.scram import ScramClient
from chronik.security.sasl.scram_keys import BY_NAME, Keys, Scram, keys_of, salted
from chronik.security.sasl.session import Answer, Session

SCRAM = BY_NAME["SCRAM-SHA-512"]
PEER = Peer("127.0.0.1", 1, 1)
DELAY_MS = 20


class Alice:
    def keys(self, scram: Scram, _user: str) -> tuple[Keys, bool]:
        return keys_of(scram, salted(b"right", b"salt", 4096, scram.digest), b"salt", 4096), True


def start_session() -> tuple[Authenticator, Session]:
    authenticator = Authenticator(cast(Any, Alice()), ManualClock(), lambda: DELAY_MS)
    session = authenticator.session(lambda: [SCRAM.name], lambda _: 0)
    session.handshake(SCRAM.name, 1, 0.0)
    return authenticator, session


def final_message(client: ScramClient, challenge: bytes) -> bytes:
    outcome = client.step(challenge)
    assert isinstance(outcome, Derive)
    answer = client.derived(salted(outcome.password, outcome.salt, outcome.iterations, outcome.digest))
    assert isinstance(answer, Challenge)
    return answer.data


def test_valid_scram_messages_are_answered_immediately() -> None:
    authenticator, session = start_session()
    client = ScramClient(SCRAM, "alice", "right", "nonce")
    challenge = authenticator.answer_at_once_or_later(session, PEER, client.first())
    assert isinstance(challenge, Answer)
    assert challenge.error is None
    last = authenticator.answer_at_once_or_later(session, PEER, final_message(client, challenge.data))
    assert isinstance(last, Answer)
    assert last.error is None
    assert session.is_let_in


def test_wrong_scram_proof_is_answered_after_delay() -> None:
    async def scenario() -> None:
        authenticator, session = start_session()
        client = ScramClient(SCRAM, "alice", "wrong", "nonce")
        challenge = await authenticator.answer(session, PEER, client.first())
        began = asyncio.get_running_loop().time()
        rejection = authenticator.answer_at_once_or_later(session, PEER, final_message(client, challenge.data))
        assert not isinstance(rejection, Answer)
        assert (await rejection).error is not None
        assert asyncio.get_running_loop().time() - began >= DELAY_MS / 1000
        assert not session.is_let_in

    asyncio.run(scenario())


def test_malformed_scram_message_is_answered_after_delay() -> None:
    authenticator, session = start_session()
    rejection = authenticator.answer_at_once_or_later(session, PEER, b"let me in")
    assert not isinstance(rejection, Answer)
    assert asyncio.run(asyncio.wait_for(rejection, 20)).error is not None
