"""Attacks with malformed SASL messages: random bytes, truncated messages, oversized frames and invalid tokens."""

from __future__ import annotations

import random
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Final

from chronik.limits import UNAUTHENTICATED_FRAME_BYTES_MAX
from chronik.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from chronik.protocol.messages.sasl_handshake import SaslHandshakeRequest
from chronik.security.sasl.outcomes import MECHANISMS, OAUTHBEARER, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512
from tests.abuse.attack import Attack, AttackTarget
from tests.abuse.authentication.connection_storm import SIZE, ConnectionHandler, StormConnection, run_storm

PATIENCE_SECONDS: Final = 0.5
SIZES: Final = (UNAUTHENTICATED_FRAME_BYTES_MAX + 1, 100 << 20, 2**31 - 1, -1)


def message(data: bytes) -> SaslAuthenticateRequest:
    return SaslAuthenticateRequest(auth_bytes=data)


async def send_random_bytes(caller: StormConnection) -> None:
    rng = caller.target.random
    mechanism = SaslHandshakeRequest(mechanism=rng.choice(MECHANISMS))
    await caller.send_requests(mechanism, message(rng.randbytes(rng.randrange(5_000))))
    await caller.wait_closed()


async def send_truncated_messages(caller: StormConnection) -> None:
    """Truncate SCRAM messages: half of the connections reach the second message with a valid nonce."""
    rng = caller.target.random
    first = b"n,,n=probe,r=" + b"abcdefgh" * 4
    begin = SaslHandshakeRequest(mechanism=rng.choice((SCRAM_SHA_256, SCRAM_SHA_512)))
    if rng.random() < 0.5:
        await caller.send_requests(begin, message(first[: rng.randrange(len(first))]))
    else:
        answer = await caller.send_requests(begin, message(first))
        nonce = answer[answer.index(b"r=") :].partition(b",")[0]
        final = b"c=biws," + nonce + b",p=" + b"A" * 44
        await caller.send_requests(message(final[: rng.randrange(len(final))]))
    await caller.wait_closed(PATIENCE_SECONDS)  # some truncated messages are still valid


async def send_oversized_messages(caller: StormConnection) -> None:
    """Send oversized frames before authentication, or oversized messages in frames of the maximum size."""
    rng = caller.target.random
    if rng.random() < 0.5:
        await caller.send(SIZE.pack(rng.choice(SIZES)) + bytes(UNAUTHENTICATED_FRAME_BYTES_MAX))
    else:
        largest = bytes(UNAUTHENTICATED_FRAME_BYTES_MAX - 100)
        await caller.send_requests(SaslHandshakeRequest(mechanism=rng.choice(MECHANISMS)), message(largest))
    await caller.wait_closed()


def encode_base64(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")


def garbage_token(rng: random.Random) -> bytes:
    """Return a malformed token, or one with an invalid signature and a valid key id."""
    header = b'{"alg":"RS256","kid":"issuer"}'
    claims = b'{"sub":"probe","iat":1700000000,"exp":2000000000}'
    parts = rng.choice(
        (
            (header, claims, rng.randbytes(256)),
            (header, claims, rng.randbytes(256)),
            (b'{"alg":"none"}', claims, b""),
            (b'{"alg":"RS256","kid":"%d"}' % rng.randrange(10**9), claims, rng.randbytes(256)),
            (b"[" * 9_000 + b"]" * 9_000, claims, b"x"),
            (b'{"a":' * 5_000 + b"1" + b"}" * 5_000, claims, b"x"),
            (header, rng.randbytes(30_000), rng.randbytes(256)),
            (rng.randbytes(50), rng.randbytes(50), rng.randbytes(50)),
        )
    )
    return b".".join(map(encode_base64, parts))


async def send_invalid_token(caller: StormConnection) -> None:
    data = b"n,,\x01auth=Bearer " + garbage_token(caller.target.random) + b"\x01\x01"
    await caller.send_requests(SaslHandshakeRequest(mechanism=OAUTHBEARER), message(data), message(b"\x01"))
    await caller.wait_closed()


def as_storm(visit: ConnectionHandler) -> Callable[[AttackTarget], None]:
    return lambda target: run_storm(target, visit, target.count(40, 500), target.count(1, 10))


LISTENER: Final = "SASL_PLAINTEXT"

ATTACKS: Final = (
    Attack(
        "sasl-noise",
        "random bytes as SaslAuthenticate, 500 connections at a time",
        as_storm(send_random_bytes),
        quick=True,
        protocol=LISTENER,
        mechanism=SCRAM_SHA_256,
    ),
    Attack(
        "sasl-cut-off",
        "truncated SCRAM messages, 500 connections at a time",
        as_storm(send_truncated_messages),
        quick=True,
        protocol=LISTENER,
        mechanism=SCRAM_SHA_512,
    ),
    Attack(
        "sasl-too-large",
        "oversized frames and messages before authentication",
        as_storm(send_oversized_messages),
        quick=True,
        protocol=LISTENER,
        mechanism=PLAIN,
    ),
    Attack(
        "sasl-tokens",
        "malformed or wrongly signed tokens, alongside a probe with a valid token",
        as_storm(send_invalid_token),
        quick=True,
        protocol=LISTENER,
        mechanism=OAUTHBEARER,
    ),
)
