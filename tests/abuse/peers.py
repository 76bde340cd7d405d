"""Strangers at the port that nodes keep for each other."""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from chronik.config import Address
from chronik.peers.frames import FrameKind, encode_frame
from chronik.peers.handshake import DialerHandshake, make_identity
from tests.abuse.attack import CLUSTER, Attack, Target

HELD: Final = 1_000
"""More than there is room for, all the time."""

DEEP: Final = encode_frame(FrameKind.HANDSHAKE, b"\x91" * 500)
CLAIMS: Final = (2**31 - 1).to_bytes(4, "big") + b"\x01"


def peers_port(target: Target) -> Address:
    assert target.raft is not None
    return target.raft


@contextmanager
def knocking(target: Target, address: Address, hello: bytes) -> Iterator[None]:
    """Connections that come as fast as one thread makes them, and stay as long as they may."""
    over = threading.Event()

    def knock() -> None:
        held: deque[socket.socket] = deque()
        while not over.is_set():
            try:
                held.append(target.plain(address, hello))
            except OSError:  # its port is closed for a moment, or it has cut us off already
                over.wait(0.01)
            if len(held) > HELD:
                held.popleft().close()
        for each in held:
            each.close()

    threads = [threading.Thread(target=knock) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def hello_of(target: Target) -> bytes:
    """A hello as a node would send it; what follows would need the secret."""
    other = next(node.node_id for node in target.nodes if node is not target.victim)
    identity = make_identity("chronik", other, "a guess at the secret of some length", [])
    return encode_frame(FrameKind.HANDSHAKE, DialerHandshake(identity, target.victim.node_id).begin())


def silent_strangers(target: Target) -> None:
    with knocking(target, peers_port(target), b""):
        time.sleep(target.count(1, 10))


def greeting_strangers(target: Target) -> None:
    with knocking(target, peers_port(target), hello_of(target)):
        time.sleep(target.count(1, 10))


def garbage(target: Target) -> None:
    for _ in range(target.count(20, 1_000)):
        for said in (DEEP, CLAIMS, b"GET / HTTP/1.1\r\n\r\n", target.random.randbytes(300), msgspec.msgpack.encode([])):
            target.plain(peers_port(target), said).close()


def restart_beside_strangers(target: Target) -> None:
    """A node that comes back is as fast as without them, or a second and a half slower: the machine has work to do."""
    node = next(node for node in target.nodes if node is not target.victim)
    target.restarted.add(node.node_id)
    alone = _restart_seconds(target, node.node_id)
    with knocking(target, peers_port(target), b""), knocking(target, peers_port(target), hello_of(target)):
        time.sleep(1.0)
        beside = _restart_seconds(target, node.node_id)
    assert beside <= alone + 1.5, f"back after {beside:.1f} s beside strangers, {alone:.1f} s without"


def _restart_seconds(target: Target, node_id: int) -> float:
    assert target.cluster is not None
    target.cluster[node_id].kill()
    began = time.monotonic()
    target.cluster[node_id].start()
    target.cluster.wait_until_ready()
    return time.monotonic() - began


ATTACKS: Final = (
    Attack("strangers-silent", "connections to the peers' port that say nothing", silent_strangers, against=(CLUSTER,)),
    Attack("strangers-greeting", "hellos of a node without its secret", greeting_strangers, against=(CLUSTER,)),
    Attack("strangers-garbage", "deep msgpack, claims of 2 GB, HTTP, noise", garbage, against=(CLUSTER,), quick=True),
    Attack(
        "strangers-restart",
        "a node restarts while strangers hold its leader's port full",
        restart_beside_strangers,
        against=(CLUSTER,),
    ),
)
