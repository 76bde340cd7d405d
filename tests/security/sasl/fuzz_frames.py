"""Fuzzing of SASL conversations over real connections: before a handshake, after it, and after authentication.

Each frame must be answered or close the connection within a time limit.
"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Iterator
from typing import Final

from chronik.protocol.codec import RequestHeader, encode_request
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.api_versions import ApiVersionsRequest
from chronik.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from chronik.protocol.messages.sasl_handshake import SaslHandshakeRequest
from chronik.protocol.schema import Request
from tests.raw import RawClient
from tests.security.fuzz_framework import mutate
from tests.security.sasl.fuzz_messages import BEARER_FRAGMENTS, SCRAM_FRAGMENTS
from tests.security.sasl.sasl_broker import ALL_MECHANISMS, authenticate

USER, PASSWORD = "alice", "right"
ANSWER_SECONDS_MAX: Final = 10.0
MESSAGES: Final = (
    b"n,,n=alice,r=abc",
    b"n,,\x01auth=Bearer a.b.c\x01\x01",
    b"\0alice\0wrong",
    b"\0alice\0right",
    b"c=biws,r=abc,p=AAAA",
    b"\x01",
    b"",
)


def frame(request: Request, version: int) -> bytes:
    return encode_request(RequestHeader(request.__schema__.api_key, version, 1, "fuzz"), request)[4:]


def frames(rng: random.Random) -> Iterator[bytes]:
    """Yield the frames of a mutated conversation, with Kafka headers or, after a version 0 handshake, without."""
    version = rng.randrange(2)
    if rng.random() < 0.8:
        mechanism = rng.choice([*ALL_MECHANISMS.split(","), "OAUTHBEARER", "X" * rng.randrange(300)])
        handshake = frame(SaslHandshakeRequest(mechanism=mechanism), version)
        yield mutate(rng, handshake) if rng.random() < 0.3 else handshake
    for _ in range(rng.randrange(1, 4)):
        yield _message(rng, version)


def _message(rng: random.Random, version: int) -> bytes:
    message = mutate(rng, rng.choice(MESSAGES), (*SCRAM_FRAGMENTS, *BEARER_FRAGMENTS))
    if rng.random() < 0.1:
        message = rng.randbytes(rng.randrange(1, 70_000))
    if version == 0:
        return message
    if rng.random() < 0.1:
        return frame(ApiVersionsRequest(), rng.randrange(3))
    request = frame(SaslAuthenticateRequest(auth_bytes=message), rng.randrange(3))
    return mutate(rng, request) if rng.random() < 0.3 else request


class Tally:
    def __init__(self) -> None:
        self.answered = self.closed = self.let_in = 0
        self.slowest_seconds = 0.0


def converse(bootstrap: str, seed: int, count: int) -> Tally:
    """Run conversations; raise AssertionError if a frame is neither answered nor closes the connection in time."""
    rng = random.Random(f"logins {seed}")
    tally = Tally()
    for _ in range(count):
        with RawClient(bootstrap) as client:
            client.socket.settimeout(ANSWER_SECONDS_MAX)
            if rng.random() < 0.1:
                response = authenticate(client, rng.choice(ALL_MECHANISMS.split(",")), USER, PASSWORD)
                assert response.error_code == ErrorCode.NONE, response
                tally.let_in += 1
            for each in frames(rng):
                if not _is_answered(client, each, tally):
                    break
    return tally


def _is_answered(client: RawClient, data: bytes, tally: Tally) -> bool:
    began = time.perf_counter()
    try:
        client.send_bytes(struct.pack(">i", len(data)) + data)
        answer = client.read_frame()
    except TimeoutError:
        raise AssertionError(f"neither a response nor a disconnect: {data.hex()[:4000]}") from None
    except ConnectionError:
        answer = None
    tally.slowest_seconds = max(tally.slowest_seconds, time.perf_counter() - began)
    tally.answered += answer is not None
    tally.closed += answer is None
    return answer is not None
