"""Wrong passwords, as fast as they can be tried from one address."""

from __future__ import annotations

import ssl
from typing import Final

from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from chronik.protocol.messages.sasl_handshake import SaslHandshakeRequest
from chronik.security.sasl.outcomes import PLAIN, SCRAM_SHA_512
from tests.abuse.attack import Attack, Target
from tests.abuse.doors.crowd import Caller, storm
from tests.abuse.doors.door import PROBE_USER

WRONG: Final = ErrorCode.SASL_AUTHENTICATION_FAILED.to_bytes(2, "big")


def user_of(caller: Caller) -> bytes:
    """Every other time somebody who does not exist: that takes as long."""
    return PROBE_USER.encode() if caller.target.random.random() < 0.5 else b"nobody%d" % caller.number


async def plain(caller: Caller) -> None:
    tried = b"\0%b\0%b" % (user_of(caller), caller.target.random.randbytes(12).hex().encode())
    answer = await caller.ask(SaslHandshakeRequest(mechanism=PLAIN), SaslAuthenticateRequest(auth_bytes=tried))
    assert answer[1:3] == WRONG, answer  # behind a tag of the header


async def scram(caller: Caller) -> None:
    first = b"n,,n=%b,r=abcdefgh" % user_of(caller)
    begun = await caller.ask(SaslHandshakeRequest(mechanism=SCRAM_SHA_512), SaslAuthenticateRequest(auth_bytes=first))
    nonce = begun[begun.index(b"r=") :].partition(b",")[0]
    final = b"c=biws,%b,p=%b==" % (nonce, b"A" * 86)
    answer = await caller.ask(SaslAuthenticateRequest(auth_bytes=final))
    assert answer[1:3] == WRONG, answer


def tried_by_plain(target: Target) -> None:
    storm(target, plain, target.count(50, 800), target.count(1, 10))


def tried_by_plain_over_tls(target: Target) -> None:
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    storm(target, plain, target.count(50, 200), target.count(1, 10), trusting)


def tried_by_scram(target: Target) -> None:
    storm(target, scram, target.count(50, 800), target.count(1, 10))


ATTACKS: Final = (
    Attack(
        "passwords-plain",
        "wrong passwords by PLAIN, which the node salts, 800 connections at a time from one address",
        tried_by_plain,
        quick=True,
        protocol="SASL_PLAINTEXT",
        mechanism=PLAIN,
    ),
    Attack(
        "passwords-scram",
        "wrong passwords by SCRAM-SHA-512, 800 connections at a time from one address",
        tried_by_scram,
        quick=True,
        protocol="SASL_PLAINTEXT",
        mechanism=SCRAM_SHA_512,
    ),
    Attack(
        "passwords-plain-tls",
        "the same over TLS, a handshake for each password, 200 connections at a time",
        tried_by_plain_over_tls,
        protocol="SASL_SSL",
        mechanism=PLAIN,
    ),
)
