"""Attacks that guess passwords as fast as possible from one address."""

from __future__ import annotations

import ssl
from typing import Final

from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from chronik.protocol.messages.sasl_handshake import SaslHandshakeRequest
from chronik.security.sasl.outcomes import PLAIN, SCRAM_SHA_512
from tests.abuse.attack import Attack, AttackTarget
from tests.abuse.authentication.attacked_listener import PROBE_USER
from tests.abuse.authentication.connection_storm import StormConnection, run_storm

WRONG: Final = ErrorCode.SASL_AUTHENTICATION_FAILED.to_bytes(2, "big")


def random_user(caller: StormConnection) -> bytes:
    """Return an existing or an unknown user. Both must take the same time."""
    return PROBE_USER.encode() if caller.target.random.random() < 0.5 else b"nobody%d" % caller.number


async def plain(caller: StormConnection) -> None:
    message = b"\0%b\0%b" % (random_user(caller), caller.target.random.randbytes(12).hex().encode())
    response = await caller.send_requests(
        SaslHandshakeRequest(mechanism=PLAIN), SaslAuthenticateRequest(auth_bytes=message)
    )
    assert response[1:3] == WRONG, response  # after the tagged fields of the header


async def scram(caller: StormConnection) -> None:
    first = b"n,,n=%b,r=abcdefgh" % random_user(caller)
    challenge = await caller.send_requests(
        SaslHandshakeRequest(mechanism=SCRAM_SHA_512), SaslAuthenticateRequest(auth_bytes=first)
    )
    nonce = challenge[challenge.index(b"r=") :].partition(b",")[0]
    final = b"c=biws,%b,p=%b==" % (nonce, b"A" * 86)
    response = await caller.send_requests(SaslAuthenticateRequest(auth_bytes=final))
    assert response[1:3] == WRONG, response


def guess_with_plain(target: AttackTarget) -> None:
    run_storm(target, plain, target.count(50, 800), target.count(1, 10))


def guess_with_plain_over_tls(target: AttackTarget) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    run_storm(target, plain, target.count(50, 200), target.count(1, 10), context)


def guess_with_scram(target: AttackTarget) -> None:
    run_storm(target, scram, target.count(50, 800), target.count(1, 10))


ATTACKS: Final = (
    Attack(
        "passwords-plain",
        "wrong passwords with PLAIN, which the node must hash, 800 connections at a time from one address",
        guess_with_plain,
        quick=True,
        protocol="SASL_PLAINTEXT",
        mechanism=PLAIN,
    ),
    Attack(
        "passwords-scram",
        "wrong passwords with SCRAM-SHA-512, 800 connections at a time from one address",
        guess_with_scram,
        quick=True,
        protocol="SASL_PLAINTEXT",
        mechanism=SCRAM_SHA_512,
    ),
    Attack(
        "passwords-plain-tls",
        "wrong passwords with PLAIN over TLS, one handshake per password, 200 connections at a time",
        guess_with_plain_over_tls,
        protocol="SASL_SSL",
        mechanism=PLAIN,
    ),
)
