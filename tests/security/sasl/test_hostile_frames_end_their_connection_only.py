"""Frames that nobody should send, to a listener that asks who clients are: by a seed, over real connections."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator

import pytest

from chronik.protocol.codec import RequestHeader, encode_request
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from chronik.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.raw import RawClient
from tests.security.sasl.asking import ALL, AskingBroker, authenticate

pytestmark = pytest.mark.slow

CONNECTIONS = 100
MESSAGES = [
    b"n,,n=alice,r=abc",
    b"n,,\x01auth=Bearer a.b.c\x01\x01",
    b"\0alice\0wrong",
    b"c=biws,r=abc,p=AAAA",
    b"\x01",
    b"",
]


@pytest.fixture(scope="module")
def broker() -> Iterator[AskingBroker]:
    with AskingBroker(**{"connection.failed.authentication.delay.ms": 0}) as running:
        assert isinstance(running, AskingBroker)
        running.add_user("alice", "right")
        yield running


def mutated(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randrange(4)):
        at = rng.randrange(len(changed) + 1)
        changed[at : at + rng.randrange(3)] = rng.randbytes(rng.randrange(3))
    return bytes(changed)


def frames(rng: random.Random) -> Iterator[bytes]:
    """A conversation, more or less: with requests around its messages, or after version 0 without."""
    version = rng.randrange(2)
    mechanism = rng.choice([*ALL.split(","), "OAUTHBEARER", "X" * rng.randrange(300)])
    handshake = encode_request(RequestHeader(17, version, 1, "x"), SaslHandshakeRequest(mechanism=mechanism))[4:]
    yield mutated(rng, handshake) if rng.random() < 0.2 else handshake
    for number in range(rng.randrange(1, 4)):
        message = mutated(rng, rng.choice(MESSAGES)) if rng.random() < 0.8 else rng.randbytes(rng.randrange(1, 5000))
        if version == 0:
            yield message or b"\0"
        else:
            header = RequestHeader(36, rng.randrange(3), number + 2, "x")
            request = encode_request(header, SaslAuthenticateRequest(auth_bytes=message))[4:]
            yield mutated(rng, request) if rng.random() < 0.2 else request


@pytest.mark.parametrize("seed", [1, 2])
def test_the_broker_is_well_afterwards(broker: AskingBroker, seed: int) -> None:
    rng = random.Random(seed)
    pid = broker.pid
    for _ in range(CONNECTIONS):
        with RawClient(broker.bootstrap) as client:
            try:
                for frame in frames(rng):
                    client.send_bytes(struct.pack(">i", len(frame)) + frame)
                    if rng.random() < 0.7 and client.read_frame() is None:
                        break
            except OSError:  # closed while we were sending
                continue
    with RawClient(broker.bootstrap) as client:
        assert authenticate(client, "SCRAM-SHA-256", "alice", "right").error_code == ErrorCode.NONE
    assert broker.pid == pid
    assert "Traceback" not in broker.log
    assert "ERROR" not in broker.log
