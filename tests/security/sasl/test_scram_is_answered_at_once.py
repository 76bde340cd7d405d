"""SCRAM takes no thread: its messages are answered in the turn of the loop in which they come, if they are right."""

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


def begun() -> tuple[Authenticator, Session]:
    authenticator = Authenticator(cast(Any, Alice()), ManualClock(), lambda: DELAY_MS)
    session = authenticator.session(lambda: [SCRAM.name], lambda _: 0)
    session.handshake(SCRAM.name, 1, 0.0)
    return authenticator, session


def final_message(client: ScramClient, challenge: bytes) -> bytes:
    asked = client.step(challenge)
    assert isinstance(asked, Derive)
    answer = client.derived(salted(asked.password, asked.salt, asked.iterations, asked.digest))
    assert isinstance(answer, Challenge)
    return answer.data


def test_what_is_right_is_answered_at_once() -> None:
    authenticator, session = begun()
    client = ScramClient(SCRAM, "alice", "right", "nonce")
    challenge = authenticator.answer_at_once_or_later(session, PEER, client.first())
    assert isinstance(challenge, Answer)
    assert challenge.error is None
    last = authenticator.answer_at_once_or_later(session, PEER, final_message(client, challenge.data))
    assert isinstance(last, Answer)
    assert last.error is None
    assert session.is_let_in


def test_what_is_wrong_is_answered_after_a_while() -> None:
    async def scenario() -> None:
        authenticator, session = begun()
        client = ScramClient(SCRAM, "alice", "wrong", "nonce")
        challenge = await authenticator.answer(session, PEER, client.first())
        began = asyncio.get_running_loop().time()
        refusal = authenticator.answer_at_once_or_later(session, PEER, final_message(client, challenge.data))
        assert not isinstance(refusal, Answer)
        assert (await refusal).error is not None
        assert asyncio.get_running_loop().time() - began >= DELAY_MS / 1000
        assert not session.is_let_in

    asyncio.run(scenario())


def test_a_first_message_that_is_none_is_answered_after_a_while() -> None:
    authenticator, session = begun()
    refusal = authenticator.answer_at_once_or_later(session, PEER, b"let me in")
    assert not isinstance(refusal, Answer)
    assert asyncio.run(asyncio.wait_for(refusal, 20)).error is not None
