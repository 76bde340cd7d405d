"""SASL as nobody speaks it: noise, messages that are cut off, frames that are too large, tokens of garbage."""

from __future__ import annotations

import random
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Final

from chronik.limits import UNAUTHENTICATED_FRAME_BYTES_MAX
from chronik.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from chronik.protocol.messages.sasl_handshake import SaslHandshakeRequest
from chronik.security.sasl.outcomes import MECHANISMS, OAUTHBEARER, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512
from tests.abuse.attack import Attack, Target
from tests.abuse.doors.crowd import SIZE, Caller, Visit, storm

PATIENCE_SECONDS: Final = 0.5
SIZES: Final = (UNAUTHENTICATED_FRAME_BYTES_MAX + 1, 100 << 20, 2**31 - 1, -1)


def message(data: bytes) -> SaslAuthenticateRequest:
    return SaslAuthenticateRequest(auth_bytes=data)


async def noise(caller: Caller) -> None:
    choose = caller.target.random
    mechanism = SaslHandshakeRequest(mechanism=choose.choice(MECHANISMS))
    await caller.ask(mechanism, message(choose.randbytes(choose.randrange(5_000))))
    await caller.until_closed()


async def cut_off(caller: Caller) -> None:
    """Half of them come to the second message, with a nonce that is right."""
    choose = caller.target.random
    first = b"n,,n=probe,r=" + b"abcdefgh" * 4
    begin = SaslHandshakeRequest(mechanism=choose.choice((SCRAM_SHA_256, SCRAM_SHA_512)))
    if choose.random() < 0.5:
        await caller.ask(begin, message(first[: choose.randrange(len(first))]))
    else:
        answer = await caller.ask(begin, message(first))
        nonce = answer[answer.index(b"r=") :].partition(b",")[0]
        final = b"c=biws," + nonce + b",p=" + b"A" * 44
        await caller.ask(message(final[: choose.randrange(len(final))]))
    await caller.until_closed(PATIENCE_SECONDS)  # some of what is left is a message still


async def too_large(caller: Caller) -> None:
    """Some as a frame, before anything is said; some as a message, with a frame around it that is just small enough."""
    choose = caller.target.random
    if choose.random() < 0.5:
        await caller.send(SIZE.pack(choose.choice(SIZES)) + bytes(UNAUTHENTICATED_FRAME_BYTES_MAX))
    else:
        largest = bytes(UNAUTHENTICATED_FRAME_BYTES_MAX - 100)
        await caller.ask(SaslHandshakeRequest(mechanism=choose.choice(MECHANISMS)), message(largest))
    await caller.until_closed()


def in_base64(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")


def garbage_token(choose: random.Random) -> bytes:
    """What is no token, or one whose signature is noise: the key that it names is the issuer's."""
    header = b'{"alg":"RS256","kid":"issuer"}'
    claims = b'{"sub":"probe","iat":1700000000,"exp":2000000000}'
    parts = choose.choice(
        (
            (header, claims, choose.randbytes(256)),
            (header, claims, choose.randbytes(256)),
            (b'{"alg":"none"}', claims, b""),
            (b'{"alg":"RS256","kid":"%d"}' % choose.randrange(10**9), claims, choose.randbytes(256)),
            (b"[" * 9_000 + b"]" * 9_000, claims, b"x"),
            (b'{"a":' * 5_000 + b"1" + b"}" * 5_000, claims, b"x"),
            (header, choose.randbytes(30_000), choose.randbytes(256)),
            (choose.randbytes(50), choose.randbytes(50), choose.randbytes(50)),
        )
    )
    return b".".join(map(in_base64, parts))


async def token(caller: Caller) -> None:
    said = b"n,,\x01auth=Bearer " + garbage_token(caller.target.random) + b"\x01\x01"
    await caller.ask(SaslHandshakeRequest(mechanism=OAUTHBEARER), message(said), message(b"\x01"))
    await caller.until_closed()


def in_a_storm(visit: Visit) -> Callable[[Target], None]:
    return lambda target: storm(target, visit, target.count(40, 500), target.count(1, 10))


LISTENER: Final = "SASL_PLAINTEXT"

ATTACKS: Final = (
    Attack(
        "sasl-noise",
        "random bytes as SaslAuthenticate, 500 connections at a time",
        in_a_storm(noise),
        quick=True,
        protocol=LISTENER,
        mechanism=SCRAM_SHA_256,
    ),
    Attack(
        "sasl-cut-off",
        "SCRAM's messages cut off somewhere, 500 connections at a time",
        in_a_storm(cut_off),
        quick=True,
        protocol=LISTENER,
        mechanism=SCRAM_SHA_512,
    ),
    Attack(
        "sasl-too-large",
        "frames and messages that are too large, before anybody has said who it is",
        in_a_storm(too_large),
        quick=True,
        protocol=LISTENER,
        mechanism=PLAIN,
    ),
    Attack(
        "sasl-tokens",
        "tokens of garbage, or signed with noise, beside a probe that has a token",
        in_a_storm(token),
        quick=True,
        protocol=LISTENER,
        mechanism=OAUTHBEARER,
    ),
)
