"""Attacks of unauthenticated clients on the peer listener."""

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
from chronik.peers.handshake import DialerHandshake, derive_identity
from tests.abuse.attack import CLUSTER, Attack, AttackTarget

HELD: Final = 1_000
"""Connections held open: more than the listener accepts."""

DEEP: Final = encode_frame(FrameKind.HANDSHAKE, b"\x91" * 500)
CLAIMS: Final = (2**31 - 1).to_bytes(4, "big") + b"\x01"


def peers_port(target: AttackTarget) -> Address:
    assert target.raft is not None
    return target.raft


@contextmanager
def occupying(target: AttackTarget, address: Address, hello: bytes) -> Iterator[None]:
    """Open connections as fast as possible in two threads, and hold them open."""
    stop = threading.Event()

    def open_connections() -> None:
        connections: deque[socket.socket] = deque()
        while not stop.is_set():
            try:
                connections.append(target.open_socket(address, hello))
            except OSError:  # the port is closed temporarily, or the node closed the connection
                stop.wait(0.01)
            if len(connections) > HELD:
                connections.popleft().close()
        for each in connections:
            each.close()

    threads = [threading.Thread(target=open_connections) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def encode_hello(target: AttackTarget) -> bytes:
    """Return the first handshake message of a node. The next message would require the shared secret."""
    other = next(node.node_id for node in target.nodes if node is not target.victim)
    identity = derive_identity("chronik", other, "a guess at the secret of some length", [])
    return encode_frame(FrameKind.HANDSHAKE, DialerHandshake(identity, target.victim.node_id).start())


def open_silent_connections(target: AttackTarget) -> None:
    with occupying(target, peers_port(target), b""):
        time.sleep(target.count(1, 10))


def send_hellos(target: AttackTarget) -> None:
    with occupying(target, peers_port(target), encode_hello(target)):
        time.sleep(target.count(1, 10))


def send_garbage(target: AttackTarget) -> None:
    for _ in range(target.count(20, 1_000)):
        for data in (DEEP, CLAIMS, b"GET / HTTP/1.1\r\n\r\n", target.random.randbytes(300), msgspec.msgpack.encode([])):
            target.open_socket(peers_port(target), data).close()


def restart_during_attack(target: AttackTarget) -> None:
    """Restart a node during the attack. It may take 1.5 s longer than without the attack."""
    node = next(node for node in target.nodes if node is not target.victim)
    target.restarted.add(node.node_id)
    alone = _restart_seconds(target, node.node_id)
    with occupying(target, peers_port(target), b""), occupying(target, peers_port(target), encode_hello(target)):
        time.sleep(1.0)
        during_attack = _restart_seconds(target, node.node_id)
    assert during_attack <= alone + 1.5, f"restart took {during_attack:.1f} s during the attack, {alone:.1f} s without"


def _restart_seconds(target: AttackTarget, node_id: int) -> float:
    assert target.cluster is not None
    target.cluster[node_id].kill()
    started = time.monotonic()
    target.cluster[node_id].start()
    target.cluster.wait_until_ready()
    return time.monotonic() - started


ATTACKS: Final = (
    Attack("peer-port-silent", "silent connections to the peer listener", open_silent_connections, targets=(CLUSTER,)),
    Attack("peer-port-hello", "handshakes without the shared secret", send_hellos, targets=(CLUSTER,)),
    Attack(
        "peer-port-garbage",
        "nested msgpack, claims of 2 GB, HTTP, random bytes",
        send_garbage,
        targets=(CLUSTER,),
        quick=True,
    ),
    Attack(
        "peer-port-restart",
        "a node restarts while attackers occupy the peer listener of its leader",
        restart_during_attack,
        targets=(CLUSTER,),
    ),
)
