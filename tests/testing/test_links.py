"""Test cluster links: closing them while connections are being established leaks no sockets."""

from __future__ import annotations

import gc
import socket
import warnings
from contextlib import ExitStack

from chronik.config import Address
from chronik.testing.links import NetworkLinks
from chronik.testing.ports import HOST

TIMES = 40
CONNECTIONS = 8


def test_closing_links_closes_connections_being_established() -> None:
    with ExitStack() as stack, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        target = stack.enter_context(socket.create_server((HOST, 0), backlog=TIMES * CONNECTIONS))
        address = Address(HOST, target.getsockname()[1])
        for _ in range(TIMES):
            links = NetworkLinks({1: address, 2: address})
            at = links.get_proxy_address(1, 2)
            for _ in range(CONNECTIONS):
                stack.enter_context(socket.create_connection((at.host, at.port)))
            links.close()
        gc.collect()
    assert not [str(each.message) for each in caught if each.category is ResourceWarning]
