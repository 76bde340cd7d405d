"""TLS handshakes that never end, that begin again and again, and that are none."""

from __future__ import annotations

import asyncio
import ssl
from functools import cache
from typing import Final

from tests.abuse.attack import Attack, Target
from tests.abuse.doors.crowd import Caller, storm

BYTE_EVERY_SECONDS: Final = 0.05
PATIENCE_SECONDS: Final = 0.2
NO_HANDSHAKES: Final = (
    b"GET / HTTP/1.1\r\n\r\n",
    b"\0\0\0\x0c\0\x12\0\0\0\0\0\1\0\0",  # ApiVersions as without TLS
    b"\x16\x03\x01\xff\xff" + b"\xff" * 300,  # a record that is too long
    b"\x15\x03\x03\x00\x02\x02\x28",  # an alert
)


@cache
def hello() -> bytes:
    """What a client says first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake without the other end")


async def half_open(caller: Caller) -> None:
    """A third says nothing, a third no more than hello, and a third says it byte by byte."""
    if caller.number % 3 == 1:
        await caller.send(hello())
    elif caller.number % 3 == 2:
        for byte in hello():
            await caller.send(bytes([byte]))
            await asyncio.sleep(BYTE_EVERY_SECONDS)
    await caller.until_closed()


async def hello_and_goodbye(caller: Caller) -> None:
    """The node has made keys and signed them by then."""
    await caller.send(hello())
    await caller.some()


async def no_handshake(caller: Caller) -> None:
    choose = caller.target.random
    said = bytearray(choose.choice((*NO_HANDSHAKES, choose.randbytes(choose.randrange(1, 600)), hello())))
    for _ in range(choose.randrange(1, 8)):
        said[choose.randrange(len(said))] = choose.randrange(256)
    await caller.send(bytes(said) + choose.randbytes(choose.randrange(100)))
    await caller.until_closed(PATIENCE_SECONDS)  # some are the beginning of what could be one


def half_open_handshakes(target: Target) -> None:
    storm(target, half_open, target.count(300, 1_000), target.count(2, 15))


def hellos(target: Target) -> None:
    storm(target, hello_and_goodbye, target.count(20, 100), target.count(1, 10))


def garbage(target: Target) -> None:
    storm(target, no_handshake, target.count(20, 100), target.count(1, 10))


ATTACKS: Final = (
    Attack(
        "tls-half-open",
        "1,000 TLS handshakes at a time from one address: silent, no more than a hello, or a byte at a time",
        half_open_handshakes,
        quick=True,
        protocol="SSL",
    ),
    Attack("tls-hellos", "ClientHellos as fast as they go, 100 at a time", hellos, protocol="SSL"),
    Attack("tls-garbage", "what is no handshake, as fast as it goes", garbage, quick=True, protocol="SSL"),
)
