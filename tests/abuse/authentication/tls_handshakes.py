"""Attacks with incomplete, repeated and malformed TLS handshakes."""

from __future__ import annotations

import asyncio
import ssl
from functools import cache
from typing import Final

from tests.abuse.attack import Attack, AttackTarget
from tests.abuse.authentication.connection_storm import StormConnection, run_storm

BYTE_EVERY_SECONDS: Final = 0.05
PATIENCE_SECONDS: Final = 0.2
NO_HANDSHAKES: Final = (
    b"GET / HTTP/1.1\r\n\r\n",
    b"\0\0\0\x0c\0\x12\0\0\0\0\0\1\0\0",  # ApiVersions without TLS
    b"\x16\x03\x01\xff\xff" + b"\xff" * 300,  # a record that is too long
    b"\x15\x03\x03\x00\x02\x02\x28",  # an alert
)


@cache
def client_hello() -> bytes:
    """Return a ClientHello."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("the handshake completed without a server")


async def half_open(caller: StormConnection) -> None:
    """Send nothing, a ClientHello, or a ClientHello byte by byte, and wait."""
    if caller.number % 3 == 1:
        await caller.send(client_hello())
    elif caller.number % 3 == 2:
        for byte in client_hello():
            await caller.send(bytes([byte]))
            await asyncio.sleep(BYTE_EVERY_SECONDS)
    await caller.wait_closed()


async def hello_and_goodbye(caller: StormConnection) -> None:
    """Send a ClientHello and close after the response: the node has created and signed keys by then."""
    await caller.send(client_hello())
    await caller.read_some()


async def no_handshake(caller: StormConnection) -> None:
    choose = caller.target.random
    data = bytearray(choose.choice((*NO_HANDSHAKES, choose.randbytes(choose.randrange(1, 600)), client_hello())))
    for _ in range(choose.randrange(1, 8)):
        data[choose.randrange(len(data))] = choose.randrange(256)
    await caller.send(bytes(data) + choose.randbytes(choose.randrange(100)))
    await caller.wait_closed(PATIENCE_SECONDS)  # some could be the start of a valid handshake


def half_open_handshakes(target: AttackTarget) -> None:
    run_storm(target, half_open, target.count(300, 1_000), target.count(2, 15))


def hellos(target: AttackTarget) -> None:
    run_storm(target, hello_and_goodbye, target.count(20, 100), target.count(1, 10))


def garbage(target: AttackTarget) -> None:
    run_storm(target, no_handshake, target.count(20, 100), target.count(1, 10))


ATTACKS: Final = (
    Attack(
        "tls-half-open",
        "1,000 TLS handshakes at a time from one address: silent, only a ClientHello, or one byte at a time",
        half_open_handshakes,
        quick=True,
        protocol="SSL",
    ),
    Attack("tls-hellos", "ClientHellos as fast as possible, 100 at a time", hellos, protocol="SSL"),
    Attack("tls-garbage", "malformed handshakes as fast as possible", garbage, quick=True, protocol="SSL"),
)
