from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from chronik.config import Address
from chronik.testing.links import NetworkLinks
from chronik.testing.ports import HOST, ReservedPorts

DEADLINE_SECONDS = 20.0
NOTHING_CAME_SECONDS = 0.1
"""Long enough for bytes on the loopback interface; the wait time of tests that expect no data."""


class Pair:
    """A connection between two nodes through the links, seen from both ends."""

    def __init__(self, dialer: socket.socket, acceptor: socket.socket) -> None:
        self.dialer, self.acceptor = dialer, acceptor
        for end in (dialer, acceptor):
            end.settimeout(DEADLINE_SECONDS)

    def passes(self, source: socket.socket, target: socket.socket, message: bytes) -> None:
        source.sendall(message)
        assert received(target, len(message)) == message


def received(end: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count and (part := end.recv(count - len(data))):
        data += part
    return data


def receives_nothing(end: socket.socket) -> bool:
    """Return whether neither data nor the end of the connection arrives."""
    end.settimeout(NOTHING_CAME_SECONDS)
    try:
        end.recv(1)
    except TimeoutError:
        return True
    finally:
        end.settimeout(DEADLINE_SECONDS)
    return False


class Net:
    """Three listening nodes and the links between them."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._listeners = {node: stack.enter_context(socket.create_server((HOST, 0))) for node in (1, 2, 3)}
        for listener in self._listeners.values():
            listener.settimeout(DEADLINE_SECONDS)
        targets = {node: Address(HOST, each.getsockname()[1]) for node, each in self._listeners.items()}
        self.links = stack.enter_context(closing(NetworkLinks(targets)))

    def dial(self, dialer: int, acceptor: int) -> socket.socket:
        address = self.links.get_proxy_address(dialer, acceptor)
        return self._stack.enter_context(socket.create_connection(address, DEADLINE_SECONDS))

    def accept(self, node: int) -> socket.socket:
        return self._stack.enter_context(self._listeners[node].accept()[0])

    def has_no_connection(self, node: int) -> bool:
        self._listeners[node].settimeout(NOTHING_CAME_SECONDS)
        try:
            self.accept(node)
        except TimeoutError:
            return True
        finally:
            self._listeners[node].settimeout(DEADLINE_SECONDS)
        return False

    def pair(self, dialer: int, acceptor: int) -> Pair:
        return Pair(self.dial(dialer, acceptor), self.accept(acceptor))

    def add(self, node: int) -> None:
        self._listeners[node] = self._stack.enter_context(socket.create_server((HOST, 0)))
        self._listeners[node].settimeout(DEADLINE_SECONDS)
        self.links.add(node, Address(HOST, self._listeners[node].getsockname()[1]))

    def shut(self, node: int) -> None:
        self._listeners[node].close()


@pytest.fixture
def net() -> Iterator[Net]:
    with ExitStack() as stack:
        yield Net(stack)


def test_open_link_passes_traffic_in_both_directions(net: Net) -> None:
    pair = net.pair(1, 2)
    pair.passes(pair.dialer, pair.acceptor, b"to 2" * 100_000)
    pair.passes(pair.acceptor, pair.dialer, b"to 1" * 100_000)


def test_link_can_be_cut_in_one_direction(net: Net) -> None:
    pair, other = net.pair(1, 2), net.pair(2, 1)
    net.links.interrupt([(1, 2)])
    pair.dialer.sendall(b"lost for now")
    other.acceptor.sendall(b"lost as well")
    assert receives_nothing(pair.acceptor)
    assert receives_nothing(other.dialer)
    pair.passes(pair.acceptor, pair.dialer, b"the other way")
    other.passes(other.dialer, other.acceptor, b"the other way")


def test_held_data_arrives_when_link_heals(net: Net) -> None:
    pair = net.pair(1, 2)
    net.links.interrupt([(1, 2), (2, 1)])
    pair.dialer.sendall(b"late")
    assert receives_nothing(pair.acceptor)
    net.links.restore()
    assert received(pair.acceptor, 4) == b"late"


def test_new_connections_fail_while_link_is_cut(net: Net) -> None:
    net.links.interrupt([(2, 1)])
    waiting = net.dial(1, 2)
    assert net.has_no_connection(2)
    assert receives_nothing(waiting), "the connection is not rejected either"
    net.links.restore()
    pair = Pair(waiting, net.accept(2))
    pair.passes(pair.dialer, pair.acceptor, b"now")


def test_cut_does_not_affect_other_links(net: Net) -> None:
    net.links.interrupt([(1, 2), (2, 1)])
    for dialer, acceptor in ((1, 3), (3, 1), (2, 3), (3, 2)):
        pair = net.pair(dialer, acceptor)
        pair.passes(pair.dialer, pair.acceptor, b"fine")


def test_added_node_has_its_own_links(net: Net) -> None:
    kept = net.pair(1, 2)
    net.add(4)
    kept.passes(kept.dialer, kept.acceptor, b"as before")
    net.links.interrupt([(4, 1), (1, 2)])
    forth, back = net.pair(2, 4), net.pair(4, 3)
    forth.passes(forth.dialer, forth.acceptor, b"to 4")
    back.passes(back.dialer, back.acceptor, b"from 4")
    waiting = net.dial(1, 4)
    assert net.has_no_connection(4)
    assert receives_nothing(waiting)


def test_connection_close_passes_through_link(net: Net) -> None:
    pair, cut = net.pair(1, 2), net.pair(1, 3)
    net.links.interrupt([(1, 3)])
    pair.dialer.close()
    cut.dialer.close()
    assert received(pair.acceptor, 1) == b""
    assert receives_nothing(cut.acceptor)


def test_connection_to_stopped_node_is_closed(net: Net) -> None:
    net.shut(2)
    assert received(net.dial(1, 2), 1) == b""


def test_reserved_ports_are_distinct_and_available() -> None:
    reserved = ReservedPorts(50)
    try:
        assert len(set(reserved.ports)) == 50
        for port in reserved.ports[:5]:
            with socket.create_server((HOST, port)) as server, socket.create_connection((HOST, port)) as client:
                accepted, address = server.accept()
                accepted.close()
                assert address == client.getsockname()
    finally:
        reserved.release()
